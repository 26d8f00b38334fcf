/** The parts of the screen of a proxy, one row each. */
import type { Component } from "svelte";
import type { Key } from "../../texts";
import type { Detailed } from "./columns";

export interface ProxyTab {
  /** The last part of the address; `overview` has none. */
  key: string;
  title: Key;
  permission: string | null;
  /** Gets the proxy, which is asked for every two seconds, and what asks at once. */
  load: () => Promise<{ default: Component<{ proxy: Detailed; refresh: () => Promise<void> }> }>;
}

export const TABS: ProxyTab[] = [
  { key: "overview", title: "proxies.tab.overview", permission: null, load: () => import("./ProxyOverview.svelte") },
];
