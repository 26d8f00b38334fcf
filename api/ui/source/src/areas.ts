/** The places of the navigation, and the areas in them, one row each: who may see them, and their screens. */
import type { Component } from "svelte";
import type { IconName } from "./components/icons";
import { match } from "./lib/router.svelte";
import type { Key } from "./texts";

export interface Route {
  /** Below `/ui`: `/proxies/:id/:tab?`. Of those that match, the one with the fewest parameters is shown. */
  path: string;
  /** The screen. It gets `params`, the parameters of its path, if it has a property of this name. */
  load: () => Promise<{ default: Component<any> }>;
  /** What its visitor needs, if it is more than the area's. */
  permission?: string;
}

export interface Area {
  key: string;
  title: Key;
  /** The title of its tab, if it is another one. */
  tab?: Key;
  /** Its place in the navigation; one without is reached from elsewhere. */
  place?: Place;
  icon: IconName;
  /** The permission to see it; null: every user. */
  permission: string | null;
  /** A role that sees it without the permission. */
  role?: string;
  /** Whether it is in the navigation of a fleet alone. */
  fleet?: boolean;
  /** The second key after `g`. */
  shortcut?: string;
  /** Where the navigation goes; the first route. */
  path: string;
  routes: Route[];
}

/** The navigation, in order. Areas of one place are tabs, in the order of `AREAS`. */
export const PLACES = {
  overview: { title: "shell.area.overview", icon: "overview" },
  proxies: { title: "shell.area.proxies", icon: "proxies" },
  accounts: { title: "shell.area.accounts", icon: "accounts" },
  rules: { title: "shell.place.rules", icon: "policies" },
  live: { title: "shell.place.live", icon: "connections" },
  logs: { title: "shell.area.logs", icon: "logs" },
  changes: { title: "shell.area.changes", icon: "history" },
  nodes: { title: "shell.area.nodes", icon: "nodes" },
  settings: { title: "shell.area.settings", icon: "settings" },
} as const satisfies Record<string, { title: Key; icon: IconName }>;
export type Place = keyof typeof PLACES;

/** Pages without the frame and without the session of users, such as the one of account holders. */
export const STANDALONE: Route[] = [{ path: "/me", load: () => import("./screens/me/Me.svelte") }];

export const AREAS: Area[] = [
  {
    key: "overview", title: "shell.area.overview", place: "overview", icon: "overview", permission: "metrics.read", shortcut: "o", path: "/",
    routes: [{ path: "/", load: () => import("./screens/overview/Overview.svelte") }],
  },
  {
    key: "proxies", title: "shell.area.proxies", place: "proxies", icon: "proxies", permission: "proxy.read", shortcut: "p", path: "/proxies",
    routes: [
      { path: "/proxies", load: () => import("./screens/proxies/Proxies.svelte") },
      { path: "/proxies/new", permission: "proxy.write", load: () => import("./screens/proxies/NewProxy.svelte") },
      { path: "/proxies/:id/:tab?", load: () => import("./screens/proxies/Proxy.svelte") },
    ],
  },
  {
    key: "pools", title: "shell.area.pools", place: "proxies", icon: "pools", permission: "proxy.read", shortcut: "x", path: "/proxies/pools",
    routes: [
      { path: "/proxies/pools", load: () => import("./screens/pools/Pools.svelte") },
      { path: "/proxies/pools/new", permission: "proxy.write", load: () => import("./screens/pools/Pool.svelte") },
      { path: "/proxies/pools/:id", load: () => import("./screens/pools/Pool.svelte") },
    ],
  },
  {
    key: "accounts", title: "shell.area.accounts", place: "accounts", icon: "accounts", permission: "proxy.read", shortcut: "a", path: "/accounts",
    routes: [
      { path: "/accounts", load: () => import("./screens/accounts/Accounts.svelte") },
      { path: "/accounts/new", permission: "proxy.write", load: () => import("./screens/accounts/NewAccount.svelte") },
      { path: "/accounts/import", permission: "proxy.write", load: () => import("./screens/accounts/import/ImportAccounts.svelte") },
      { path: "/accounts/:id/:tab?", load: () => import("./screens/accounts/Account.svelte") },
    ],
  },
  {
    key: "plans", title: "shell.area.plans", place: "accounts", icon: "plans", permission: "proxy.read", path: "/accounts/plans",
    routes: [
      { path: "/accounts/plans", load: () => import("./screens/plans/Plans.svelte") },
      { path: "/accounts/plans/new", permission: "proxy.write", load: () => import("./screens/plans/Plan.svelte") },
      { path: "/accounts/plans/:id", load: () => import("./screens/plans/Plan.svelte") },
    ],
  },
  {
    key: "usage", title: "shell.area.usage", place: "accounts", icon: "chart", permission: "metrics.read", shortcut: "m", path: "/accounts/usage",
    routes: [{ path: "/accounts/usage", load: () => import("./screens/usage/Usage.svelte") }],
  },
  {
    key: "policies", title: "shell.area.policies", place: "rules", icon: "policies", permission: "proxy.read", shortcut: "y", path: "/rules",
    routes: [
      { path: "/rules", load: () => import("./screens/policies/Policies.svelte") },
      { path: "/rules/policies/new", permission: "proxy.write", load: () => import("./screens/policies/Policy.svelte") },
      { path: "/rules/policies/:id", load: () => import("./screens/policies/Policy.svelte") },
    ],
  },
  {
    key: "lists", title: "shell.area.lists", place: "rules", icon: "lists", permission: "proxy.read", shortcut: "t", path: "/rules/lists",
    routes: [
      { path: "/rules/lists", load: () => import("./screens/lists/Lists.svelte") },
      { path: "/rules/lists/new", permission: "proxy.write", load: () => import("./screens/lists/List.svelte") },
      { path: "/rules/lists/:id", load: () => import("./screens/lists/List.svelte") },
    ],
  },
  {
    key: "try", title: "shell.area.try", place: "rules", icon: "search", permission: "proxy.read", shortcut: "r", path: "/rules/try",
    routes: [{ path: "/rules/try", load: () => import("./screens/policies/Try.svelte") }],
  },
  {
    key: "connections", title: "shell.place.live", place: "live", icon: "connections", permission: "proxy.read", shortcut: "c", path: "/live",
    routes: [{ path: "/live", load: () => import("./screens/connections/Connections.svelte") }],
  },
  {
    key: "logs", title: "shell.area.logs", place: "logs", icon: "logs", permission: "metrics.read", shortcut: "l", path: "/logs",
    routes: [
      { path: "/logs", load: () => import("./screens/logs/Logs.svelte") },
      { path: "/logs/record", load: () => import("./screens/logs/Record.svelte") },
    ],
  },
  {
    key: "changes", title: "shell.area.changes", place: "changes", icon: "history", permission: "admin", role: "auditor", shortcut: "h", path: "/changes",
    routes: [{ path: "/changes", load: () => import("./screens/history/Changes.svelte") }],
  },
  {
    key: "nodes", title: "shell.area.nodes", place: "nodes", icon: "nodes", permission: "settings.read", fleet: true, shortcut: "f", path: "/nodes",
    routes: [{ path: "/nodes", load: () => import("./screens/nodes/Nodes.svelte") }],
  },
  {
    key: "settings", title: "shell.area.settings", tab: "shell.area.service", place: "settings", icon: "settings", permission: "settings.read", shortcut: "e", path: "/settings",
    routes: [
      { path: "/settings", load: () => import("./screens/settings/Settings.svelte") },
      { path: "/settings/all", load: () => import("./screens/settings/AllSettings.svelte") },
    ],
  },
  {
    key: "users", title: "shell.area.users", place: "settings", icon: "users", permission: "users.read", shortcut: "u", path: "/settings/users",
    routes: [
      { path: "/settings/users", load: () => import("./screens/users/Users.svelte") },
      { path: "/settings/users/new", permission: "users.write", load: () => import("./screens/users/NewUser.svelte") },
      { path: "/settings/users/:id", load: () => import("./screens/users/User.svelte") },
    ],
  },
  {
    key: "keys", title: "shell.area.keys", place: "settings", icon: "keys", permission: "admin", shortcut: "k", path: "/settings/api-keys",
    routes: [{ path: "/settings/api-keys", load: () => import("./screens/keys/Keys.svelte") }],
  },
  {
    key: "webhooks", title: "shell.area.webhooks", place: "settings", icon: "webhooks", permission: "settings.read", shortcut: "w", path: "/settings/webhooks",
    routes: [
      { path: "/settings/webhooks", load: () => import("./screens/webhooks/Webhooks.svelte") },
      { path: "/settings/webhooks/new", permission: "settings.write", load: () => import("./screens/webhooks/NewWebhook.svelte") },
      { path: "/settings/webhooks/:id/:tab?", load: () => import("./screens/webhooks/Webhook.svelte") },
    ],
  },
  {
    key: "resolver", title: "shell.area.resolver", place: "settings", icon: "resolver", permission: "settings.read", shortcut: "n", path: "/settings/resolver",
    routes: [{ path: "/settings/resolver", load: () => import("./screens/resolver/Resolver.svelte") }],
  },
  {
    key: "transfer", title: "shell.area.transfer", place: "settings", icon: "transfer", permission: "admin", path: "/settings/transfer",
    routes: [{ path: "/settings/transfer", load: () => import("./screens/transfer/Transfer.svelte") }],
  },
  {
    key: "backup", title: "shell.area.backup", place: "settings", icon: "download", permission: "admin", path: "/settings/backup",
    routes: [{ path: "/settings/backup", load: () => import("./screens/transfer/Backup.svelte") }],
  },
  {
    key: "account", title: "shell.area.account", icon: "user", permission: null, shortcut: "s", path: "/account",
    routes: [{ path: "/account", load: () => import("./screens/account/YourAccount.svelte") }],
  },
];

/** All routes, those first that match fewer paths: `/proxies/pools` is no proxy. */
const parameters = ({ path }: Route) => path.split(":").length;
const ROUTES = AREAS.flatMap((area) => area.routes.map((route) => ({ area, route }))).sort((a, b) => parameters(a.route) - parameters(b.route));

/** The screen of a path below `/ui`; null without one. */
export function screenAt(path: string): { area: Area; route: Route; params: Record<string, string> } | null {
  for (const { area, route } of ROUTES) {
    const params = match(route.path, path);
    if (params) return { area, route, params };
  }
  return null;
}
