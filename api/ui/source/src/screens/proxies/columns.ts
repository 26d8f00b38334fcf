/** What lists and the screen of a proxy derive from its view. */
import type { Schemas } from "../../api/client";

export type Listed = Schemas["ListedProxy"];
export type Detailed = Schemas["DetailedProxy"];

/** The actual state; `unknown` while the supervisor doesn't respond. */
export const stateOf = (proxy: Pick<Listed, "runtime">): string => proxy.runtime?.state ?? "unknown";

/** `127.0.0.1:3128`, `[::1]:3128`. */
export const address = ({ host, port }: { host: string; port: number }): string => `${host.includes(":") ? `[${host}]` : host}:${port}`;

/** Errors of all requests, in percent; null without requests. */
export function errorRate({ stats }: Pick<Listed, "stats">): number | null {
  return stats.total_requests ? (stats.errors / stats.total_requests) * 100 : null;
}

/** A command that sends a request through the proxy from this browser's view of the host. */
export function curl(proxy: Pick<Detailed, "host" | "port" | "protocol" | "auth">, host: string): string {
  const scheme = { http: "http", https: "https", socks4: "socks4a", socks5: "socks5h" }[proxy.protocol];
  const reachable = ["0.0.0.0", "::", "127.0.0.1", "::1", "localhost"].includes(proxy.host) ? host : proxy.host;
  const user = proxy.auth.enabled ? `--proxy-user '${(proxy.auth.username ?? "USER").replaceAll("'", "'\\''")}' ` : "";
  return `curl --proxy ${scheme}://${address({ host: reachable, port: proxy.port })} ${user}https://example.com/`;
}
