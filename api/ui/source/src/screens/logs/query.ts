/** The filters of access records: in the address, and as the API has them. */
import type { Schemas } from "../../api/client";
import { choice, filters, flag, number, text } from "../../lib/filters.svelte";
import { bounds, isRange, RANGES, type RangeName, type TimeSpan } from "../../lib/range";

export type Entry = Schemas["LogEntry"];

export const CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;
export const LEVELS = ["info", "warning", "error"] as const;
/** Filters that come by a click on a value. */
export const CLICKED = ["client", "user", "method", "reason", "status", "target", "proxy", "node", "tls_name", "alpn", "request"] as const;
export type Clicked = (typeof CLICKED)[number];

export const logFilters = () =>
  filters({
    q: text(), class: choice(CLASSES), level: choice(LEVELS), client: text(), user: text(), method: text(), reason: text(),
    status: text(), target: text(), proxy: text(), node: text(), tls_name: text(), alpn: text(), request: text(), range: choice(Object.keys(RANGES) as RangeName[], "1h"), from: text(), to: text(),
    follow: flag(), hidden: text(), page: number(),
  });

export type Values = ReturnType<typeof logFilters>["values"];

/** The time range of the address. */
export function spanOf({ range, from, to }: Values): TimeSpan {
  if (from) return { range: "", from, to };
  return { range: isRange(range) ? range : "1h", from: "", to: "" };
}

/** Which records, without a time range. `only` is the id of the proxy whose screen it is. */
export function which(values: Values, only?: string) {
  const status = /^[1-5][0-9]{2}$/.test(values.status) ? Number(values.status) : undefined;
  return {
    search: values.q || undefined,
    status_class: values.class || undefined,
    min_level: values.level || undefined,
    client_ip: values.client || undefined,
    user: values.user || undefined,
    method: values.method || undefined,
    reason: values.reason || undefined,
    status_code: status,
    node: values.node || undefined,
    target: values.target || undefined,
    tls_name: values.tls_name || undefined,
    alpn: values.alpn || undefined,
    request_id: values.request || undefined,
    proxy_id: only ?? (values.proxy || undefined),
  };
}

/** Start and end as the API has them. */
export function times(span: TimeSpan): { start_time: string; end_time: string } {
  const { start, end } = bounds(span);
  return { start_time: start.toISOString(), end_time: end.toISOString() };
}

/** The colour of its status; a tunnel may have been announced with 200 before it was refused, which is a warning. */
export function kindOf({ status_code, level }: Pick<Entry, "status_code" | "level">): "bad" | "warn" | "good" {
  if (status_code >= 500) return "bad";
  return status_code >= 400 || level === "warning" ? "warn" : "good";
}

/** The protocols that a client offered in its handshake. */
export const offered = ({ alpn }: Pick<Entry, "alpn">): string[] => alpn.split(",").filter(Boolean);

/** What identifies a record in lists and addresses: its time and its request id. */
export const keyOf = (entry: Entry): string => `${entry.timestamp}~${entry.request_id}`;
