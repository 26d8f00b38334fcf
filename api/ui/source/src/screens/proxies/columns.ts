/** What lists and the screen of a proxy derive from its view. */
import type { Schemas } from "../../api/client";
import { asTyped } from "../../lib/format";
import { t } from "../../texts";

export type Listed = Schemas["ListedProxy"];
export type Detailed = Schemas["DetailedProxy"];

/** The actual state; `unknown` while the supervisor doesn't respond. */
export const stateOf = (proxy: Pick<Listed, "runtime">): string => proxy.runtime?.state ?? "unknown";

type At = { host: string; port: number | string; runtime?: { host?: string | null } | null };
/** In a fleet that of the asked node, where the proxy is at an address of each. */
const hostOf = ({ host, runtime }: At): string => runtime?.host ?? host;

/** `127.0.0.1:3128`, `[::1]:3128`. */
export const address = (proxy: At): string => `${/^[^{]*:/.test(hostOf(proxy)) ? `[${hostOf(proxy)}]` : hostOf(proxy)}:${proxy.port}`;

/** Errors of all requests, in percent; null without requests. */
export function errorRate({ stats }: Pick<Listed, "stats">): number | null {
  return stats.total_requests ? (stats.errors / stats.total_requests) * 100 : null;
}

/** `20 Mbit/s to clients, 60 requests per minute`. */
export function limitsText({ limits }: Pick<Detailed, "limits">): string {
  const set = (Object.entries(limits) as [keyof Detailed["limits"], number][]).filter(([, value]) => value);
  return set.map(([name, value]) => t(`proxies.limits.${name}`, { n: value, value: name.startsWith("bandwidth") ? asTyped("rate", value) : value })).join(", ") || t("proxies.limits.none");
}

/** Whether clients sign in, and as whom. */
export const signInText = ({ auth }: Pick<Detailed, "auth">): string => (!auth.enabled ? t("proxies.auth.off") : auth.username ? t("proxies.auth.user", { username: auth.username }) : t("proxies.auth.on"));
