/** What lists and the screen of a proxy derive from its view. */
import type { Schemas } from "../../api/client";

export type Listed = Schemas["ListedProxy"];
export type Detailed = Schemas["DetailedProxy"];

/** The actual state; `unknown` while the supervisor doesn't respond. */
export const stateOf = (proxy: Pick<Listed, "runtime">): string => proxy.runtime?.state ?? "unknown";

type At = { host: string; port: number | string; runtime?: { host?: string | null } | null };
/** In a fleet that of the asked node, where the proxy is at an address of each. */
const hostOf = ({ host, runtime }: At): string => runtime?.host ?? host;

/** `127.0.0.1:3128`, `[::1]:3128`. */
export const address = (proxy: At): string => `${/^[^{]*:/.test(hostOf(proxy)) ? `[${hostOf(proxy)}]` : hostOf(proxy)}:${proxy.port}`;

/** What clients connect to: a proxy at all addresses, or at one of each node, is reached by the host of this page, one of a range at its first port. */
export const reachable = (proxy: At, own: string): string => address({ host: /^[0:.]+$|\{/.test(hostOf(proxy)) ? own : hostOf(proxy), port: String(proxy.port).split("-")[0]! });

/** Errors of all requests, in percent; null without requests. */
export function errorRate({ stats }: Pick<Listed, "stats">): number | null {
  return stats.total_requests ? (stats.errors / stats.total_requests) * 100 : null;
}
