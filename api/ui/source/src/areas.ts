/** The areas of the page, one row each: their place in the navigation, who may see them, and their screens. */
import type { Component } from "svelte";
import type { IconName } from "./components/icons";
import type { Key } from "./texts";

export interface Route {
  /** Below `/ui`: `/proxies/:id/:tab?`. The first that matches is shown, so `/new` stands before `/:id`. */
  path: string;
  /** The screen. It gets `params`, the parameters of its path, if it has a property of this name. */
  load: () => Promise<{ default: Component<any> }>;
  /** What its visitor needs, if it is more than the area's. */
  permission?: string;
}

export interface Area {
  key: string;
  title: Key;
  /** The group in the navigation; areas without one are reached from elsewhere. */
  group?: "traffic" | "access" | "system";
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

/** Pages without the frame and without the session of users, such as the one of account holders. */
export const STANDALONE: Route[] = [{ path: "/me", load: () => import("./screens/me/Me.svelte") }];

export const AREAS: Area[] = [
  {
    key: "overview",
    title: "shell.area.overview",
    group: "traffic",
    icon: "overview",
    permission: "metrics.read",
    shortcut: "o",
    path: "/",
    routes: [{ path: "/", load: () => import("./screens/overview/Overview.svelte") }],
  },
  {
    key: "proxies",
    title: "shell.area.proxies",
    group: "traffic",
    icon: "proxies",
    permission: "proxy.read",
    shortcut: "p",
    path: "/proxies",
    routes: [
      { path: "/proxies", load: () => import("./screens/proxies/Proxies.svelte") },
      { path: "/proxies/new", permission: "proxy.write", load: () => import("./screens/proxies/NewProxy.svelte") },
      { path: "/proxies/:id/:tab?", load: () => import("./screens/proxies/Proxy.svelte") },
    ],
  },
  {
    key: "pools",
    title: "shell.area.pools",
    group: "traffic",
    icon: "pools",
    permission: "proxy.read",
    shortcut: "x",
    path: "/pools",
    routes: [
      { path: "/pools", load: () => import("./screens/pools/Pools.svelte") },
      { path: "/pools/new", permission: "proxy.write", load: () => import("./screens/pools/Pool.svelte") },
      { path: "/pools/:id", load: () => import("./screens/pools/Pool.svelte") },
    ],
  },
  {
    key: "accounts",
    title: "shell.area.accounts",
    group: "access",
    icon: "accounts",
    permission: "proxy.read",
    shortcut: "a",
    path: "/accounts",
    routes: [
      { path: "/accounts", load: () => import("./screens/accounts/Accounts.svelte") },
      { path: "/accounts/new", permission: "proxy.write", load: () => import("./screens/accounts/NewAccount.svelte") },
      { path: "/accounts/import", permission: "proxy.write", load: () => import("./screens/accounts/import/ImportAccounts.svelte") },
      { path: "/accounts/:id/:tab?", load: () => import("./screens/accounts/Account.svelte") },
      { path: "/plans", load: () => import("./screens/plans/Plans.svelte") },
      { path: "/plans/new", permission: "proxy.write", load: () => import("./screens/plans/Plan.svelte") },
      { path: "/plans/:id", load: () => import("./screens/plans/Plan.svelte") },
    ],
  },
  {
    key: "policies",
    title: "shell.area.policies",
    group: "access",
    icon: "policies",
    permission: "proxy.read",
    shortcut: "y",
    path: "/policies",
    routes: [
      { path: "/policies", load: () => import("./screens/policies/Policies.svelte") },
      { path: "/policies/new", permission: "proxy.write", load: () => import("./screens/policies/Policy.svelte") },
      { path: "/policies/:id", load: () => import("./screens/policies/Policy.svelte") },
    ],
  },
  {
    key: "lists",
    title: "shell.area.lists",
    group: "access",
    icon: "lists",
    permission: "proxy.read",
    shortcut: "t",
    path: "/lists",
    routes: [
      { path: "/lists", load: () => import("./screens/lists/Lists.svelte") },
      { path: "/lists/new", permission: "proxy.write", load: () => import("./screens/lists/List.svelte") },
      { path: "/lists/:id", load: () => import("./screens/lists/List.svelte") },
    ],
  },
  {
    key: "usage",
    title: "shell.area.usage",
    group: "access",
    icon: "chart",
    permission: "metrics.read",
    shortcut: "m",
    path: "/usage",
    routes: [{ path: "/usage", load: () => import("./screens/usage/Usage.svelte") }],
  },
  {
    key: "connections",
    title: "shell.area.connections",
    group: "traffic",
    icon: "connections",
    permission: "proxy.read",
    shortcut: "c",
    path: "/connections",
    routes: [{ path: "/connections", load: () => import("./screens/connections/Connections.svelte") }],
  },
  {
    key: "logs",
    title: "shell.area.logs",
    group: "traffic",
    icon: "logs",
    permission: "metrics.read",
    shortcut: "l",
    path: "/logs",
    routes: [
      { path: "/logs", load: () => import("./screens/logs/Logs.svelte") },
      { path: "/logs/record", load: () => import("./screens/logs/Record.svelte") },
    ],
  },
  {
    key: "users",
    title: "shell.area.users",
    group: "access",
    icon: "users",
    permission: "users.read",
    shortcut: "u",
    path: "/users",
    routes: [
      { path: "/users", load: () => import("./screens/users/Users.svelte") },
      { path: "/users/new", permission: "users.write", load: () => import("./screens/users/NewUser.svelte") },
      { path: "/users/:id", load: () => import("./screens/users/User.svelte") },
    ],
  },
  {
    key: "keys",
    title: "shell.area.keys",
    group: "access",
    icon: "keys",
    permission: null,
    shortcut: "k",
    path: "/keys",
    routes: [
      { path: "/keys", load: () => import("./screens/keys/Keys.svelte") },
    ],
  },
  {
    key: "sessions",
    title: "shell.area.sessions",
    group: "access",
    icon: "sessions",
    permission: null,
    shortcut: "s",
    path: "/sessions",
    routes: [
      { path: "/sessions", load: () => import("./screens/sessions/Sessions.svelte") },
    ],
  },
  {
    key: "account",
    title: "shell.area.account",
    icon: "user",
    permission: null,
    path: "/account",
    routes: [{ path: "/account", load: () => import("./screens/account/YourAccount.svelte") }],
  },
  {
    key: "resolver",
    title: "shell.area.resolver",
    group: "traffic",
    icon: "resolver",
    permission: "settings.read",
    shortcut: "n",
    path: "/resolver",
    routes: [{ path: "/resolver", load: () => import("./screens/resolver/Resolver.svelte") }],
  },
  {
    key: "nodes",
    title: "shell.area.nodes",
    group: "system",
    icon: "nodes",
    permission: "settings.read",
    fleet: true,
    shortcut: "f",
    path: "/nodes",
    routes: [{ path: "/nodes", load: () => import("./screens/nodes/Nodes.svelte") }],
  },
  {
    key: "webhooks",
    title: "shell.area.webhooks",
    group: "system",
    icon: "webhooks",
    permission: "settings.read",
    shortcut: "w",
    path: "/webhooks",
    routes: [
      { path: "/webhooks", load: () => import("./screens/webhooks/Webhooks.svelte") },
      { path: "/webhooks/new", permission: "settings.write", load: () => import("./screens/webhooks/NewWebhook.svelte") },
      { path: "/webhooks/:id/:tab?", load: () => import("./screens/webhooks/Webhook.svelte") },
    ],
  },
  {
    key: "audit",
    title: "shell.area.audit",
    group: "system",
    icon: "audit",
    permission: "admin",
    role: "auditor",
    path: "/audit",
    routes: [{ path: "/audit", load: () => import("./screens/audit/Audit.svelte") }],
  },
  {
    key: "history",
    title: "shell.area.history",
    group: "system",
    icon: "history",
    permission: "admin",
    role: "auditor",
    shortcut: "h",
    path: "/history",
    routes: [
      { path: "/history", load: () => import("./screens/history/History.svelte") },
      { path: "/history/:id", load: () => import("./screens/history/Revision.svelte") },
    ],
  },
  {
    key: "settings",
    title: "shell.area.settings",
    group: "system",
    icon: "settings",
    permission: "settings.read",
    shortcut: "e",
    path: "/settings",
    routes: [{ path: "/settings/:tab?", load: () => import("./screens/settings/Settings.svelte") }],
  },
  {
    key: "transfer",
    title: "shell.area.transfer",
    group: "system",
    icon: "transfer",
    permission: "admin",
    path: "/transfer",
    routes: [{ path: "/transfer", load: () => import("./screens/transfer/Transfer.svelte") }],
  },
];
