/** The filters of access records: in the address, and as the API has them. */
import { api, ApiError, data, type Schemas } from "../../api/client";
import { choice, filters, flag, number, text } from "../../lib/filters.svelte";
import { bounds, isRange, RANGES, type RangeName, type TimeSpan } from "../../lib/range";
import { reasonText } from "../../lib/reasons";
import { url } from "../../lib/router.svelte";
import { askedOf } from "../objects/tls-name";
import { isPlain, tryUrl } from "../policies/decision";
import { hostOf, type Subject } from "../policies/intervention";
import { OUTCOMES } from "./outcome";

export type Entry = Schemas["LogEntry"];

export const CLASSES = ["2xx", "3xx", "4xx", "5xx"] as const;
export const LEVELS = ["info", "warning", "error"] as const;
/** Filters that come by a click on a value. */
export const CLICKED = ["client", "user", "method", "reason", "status", "target", "proxy", "node", "tls_name", "alpn", "request"] as const;
export type Clicked = (typeof CLICKED)[number];

export const logFilters = () =>
  filters({
    q: text(), outcome: choice(OUTCOMES), class: choice(CLASSES), level: choice(LEVELS), client: text(), user: text(), method: text(), reason: text(),
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
    outcome: values.outcome || undefined,
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

/** The protocols that a client offered in its handshake. */
export const offered = ({ alpn }: Pick<Entry, "alpn">): string[] => alpn.split(",").filter(Boolean);

/** What identifies a record in lists and addresses: its proxy, its time and its request id. */
export const keyOf = ({ proxy_id, timestamp, request_id }: Pick<Entry, "proxy_id" | "timestamp" | "request_id">): string => [proxy_id, timestamp, request_id].join("~");

/** The screen of one record alone. */
export const recordUrl = ({ proxy_id, timestamp, request_id }: Entry): string => url("/logs/record", { at: timestamp, id: request_id, proxy: proxy_id });

/** What is known of its traffic. */
export const subjectOf = ({ target_url, user, proxy_id, proxy_name }: Entry): Subject => ({ host: hostOf(target_url), account: user, proxy: { id: proxy_id, name: proxy_name || proxy_id } });

/** The rules of its proxy, asked about the same request now, with what the record says. */
export function explainUrl(entry: Entry): string {
  const { proxy_id, target_url, client_ip, user, credential, method, status_code, reason, detail } = entry;
  const was = reason ? [status_code, reasonText(entry), detail].filter(Boolean).join(", ") : "";
  return tryUrl({ proxy: proxy_id, target: target_url, client: client_ip, account: user, credential, ...(isPlain(target_url) ? { method } : askedOf(entry)), was });
}

/** The record of a key; null where there is none any more. */
export async function recordOf(key: string, signal: AbortSignal): Promise<Entry | null> {
  const [proxy = "", at = "", id = ""] = key.split("~");
  const time = new Date(at).getTime();
  if (Number.isNaN(time)) return null;
  const query = { start_time: new Date(time - 1).toISOString(), end_time: new Date(time + 1).toISOString(), proxy_id: proxy || undefined, request_id: id || undefined, limit: 50 };
  const { logs } = await data(api.GET("/api/v1/logs", { params: { query }, signal }));
  return logs.find((each) => each.request_id === id && each.timestamp === at) ?? logs.find((each) => each.request_id === id) ?? null;
}

/** Times that a count is asked for again while the service has too many of them at once. */
const AGAIN = 5;

/** A count of records, in its turn: the service takes a few of one user at a time. */
export async function inTurn<T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> {
  for (let left = AGAIN; ; left--) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 429 || left === 0) throw error;
      await new Promise((done) => setTimeout(done, (error.retryAfter ?? 1) * 1000));
      signal.throwIfAborted();
    }
  }
}
