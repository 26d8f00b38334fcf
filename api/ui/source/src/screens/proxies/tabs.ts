/** The parts of the screen of a proxy, one row each. */
import type { Component } from "svelte";
import type { Key } from "../../texts";
import type { Detailed } from "./columns";

export interface ProxyTab {
  /** The last part of the address; `now` has none. */
  key: string;
  title: Key;
  permission: string | null;
  /** A role that sees it without the permission. */
  role?: string;
  /** It is no tab: the one that leads to it. */
  under?: string;
  /** Gets the proxy, which is another object every two seconds, and what asks at once. */
  load: () => Promise<{ default: Component<{ proxy: Detailed; refresh: () => Promise<void> }> }>;
}

export const TABS: ProxyTab[] = [
  { key: "now", title: "proxies.now", permission: null, load: () => import("./ProxyNow.svelte") },
  { key: "log", title: "common.log", permission: "metrics.read", load: () => import("./ProxyLog.svelte") },
  { key: "rules", title: "proxies.tab.rules", permission: "proxy.read", load: () => import("./ProxyRules.svelte") },
  { key: "configuration", title: "proxies.configuration", permission: "proxy.write", load: () => import("./ProxyEdit.svelte") },
  { key: "history", title: "shell.area.history", permission: "admin", role: "auditor", load: () => import("./ProxyHistory.svelte") },
  { key: "accounts", title: "shell.area.accounts", permission: "proxy.read", under: "rules", load: () => import("./ProxyAccounts.svelte") },
];

/** Where links lead that name a tab of before: a path, with the query of the link; null: it is none. */
export function movedTo(id: string, tab: string | undefined, query: URLSearchParams): string | null {
  if (tab === "connections") return `/connections?${new URLSearchParams([["proxy", id], ...query])}`;
  const rest = query.toString();
  return tab === "overview" || tab === "charts" ? `/proxies/${id}${rest ? `?${rest}` : ""}` : null;
}
