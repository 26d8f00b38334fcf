/** The parts of the screen of a proxy, one row each. */
import type { Component } from "svelte";
import type { Key } from "../../texts";
import type { Detailed } from "./columns";

export interface ProxyTab {
  /** The last part of the address; `overview` has none. */
  key: string;
  title: Key;
  permission: string | null;
  /** A role that sees it without the permission. */
  role?: string;
  /** Gets the proxy, which is another object every two seconds, and what asks at once. */
  load: () => Promise<{ default: Component<{ proxy: Detailed; refresh: () => Promise<void> }> }>;
}

export const TABS: ProxyTab[] = [
  { key: "overview", title: "proxies.tab.overview", permission: null, load: () => import("./ProxyOverview.svelte") },
  { key: "charts", title: "proxies.tab.charts", permission: "metrics.read", load: () => import("./ProxyCharts.svelte") },
  { key: "connections", title: "proxies.tab.connections", permission: "proxy.read", load: () => import("./ProxyConnections.svelte") },
  { key: "log", title: "proxies.tab.log", permission: "metrics.read", load: () => import("./ProxyLog.svelte") },
  { key: "rules", title: "proxies.tab.rules", permission: "proxy.read", load: () => import("./ProxyRules.svelte") },
  { key: "accounts", title: "proxies.accounts", permission: "proxy.read", load: () => import("./ProxyAccounts.svelte") },
  { key: "configuration", title: "proxies.configuration", permission: "proxy.write", load: () => import("./ProxyEdit.svelte") },
  { key: "history", title: "shell.area.history", permission: "admin", role: "auditor", load: () => import("./ProxyHistory.svelte") },
];
