/** The parts of the settings, one row each. */
import type { Component } from "svelte";
import type { Key } from "../../texts";

export interface SettingsTab {
  /** The last part of the address; the first has none. */
  key: string;
  title: Key;
  /** What it needs beside the area's permission. */
  permission?: string;
  role?: string;
  load: () => Promise<{ default: Component }>;
}

export const TABS: SettingsTab[] = [
  { key: "live", title: "settings.tab.live", load: () => import("./LiveSettings.svelte") },
  { key: "keys", title: "settings.tab.keys", load: () => import("./Keys.svelte") },
  { key: "history", title: "settings.tab.history", permission: "admin", role: "auditor", load: () => import("./SettingsHistory.svelte") },
];
