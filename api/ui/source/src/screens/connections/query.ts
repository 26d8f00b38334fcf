/** The filters of live connections: in the address, and as the API has them. */
import type { Schemas } from "../../api/client";
import { choice, filters, text } from "../../lib/filters.svelte";

export type Connection = Schemas["FleetConnection"];
export type Group = Schemas["ConnectionGroup"];

export const GROUPS = ["client", "account", "target", "proxy"] as const;
const FIELDS = ["age", "client", "user", "target", "bytes_in", "bytes_out", "rate_in", "rate_out"] as const;
type Field = (typeof FIELDS)[number];
export type Sort = Field | `-${Field}`;
const SORTS: readonly Sort[] = [...FIELDS, ...FIELDS.map((field): Sort => `-${field}`)];

export const connectionFilters = () =>
  filters({ target: text(), client: text(), user: text(), account: text(), proxy: text(), node: text(), tls_name: text(), alpn: text(), by: choice(GROUPS), sort: choice(SORTS, "-age") });

type Values = ReturnType<typeof connectionFilters>["values"];

/** Which connections: for lists, groups, and ending. `only` and `fixed` are the proxy and the account whose screen it is. */
export function which(values: Values, only?: string, fixed?: string) {
  const { target, client, user, account, proxy, node, tls_name, alpn } = values;
  const given = { target: target || undefined, client: client || undefined, user: user || undefined, account: fixed ?? (account || undefined), node: node || undefined, tls_name: tls_name || undefined, alpn: alpn || undefined };
  return { ...given, proxy: only ?? (proxy || undefined) };
}

/** Whether the client named another host in its handshake than it requested. */
export function otherName({ target, tls_name }: Pick<Connection, "target" | "tls_name">): boolean {
  const host = (target ?? "").replace(/:\d+$/, "").replace(/\.$/, "").toLowerCase();
  return !!tls_name && tls_name.replace(/\.$/, "") !== host;
}

/** Whether nothing narrows them. */
export const everything = (query: ReturnType<typeof which>): boolean => Object.values(query).every((value) => value === undefined);

/** A group's value as the filter of the list. */
export function narrowed(group: Group, by: (typeof GROUPS)[number]): Partial<Values> {
  if (by === "proxy") return { by: "", proxy: group.proxy ?? "" };
  if (by === "account") return { by: "", user: group.account ?? "" };
  return { by: "", [by]: group[by] ?? "" };
}
