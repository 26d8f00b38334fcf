/** What many proxies may get at once: a field, and the change that a value of it is. */
import { api, data, type Schemas } from "../../api/client";
import type { Chosen, Failure } from "../../lib/bulk.svelte";
import type { Key } from "../../texts";

export type ProxySet = Partial<Schemas["ProxySet"]>;
/** How a value is typed. */
type Kind = "rate" | "seconds" | "number" | "text" | "policies" | "pools" | "switch";

export const FIELDS = {
  "limits.bandwidth_out": { title: "accounts.limit.bandwidth_out", kind: "rate" },
  "limits.bandwidth_in": { title: "accounts.limit.bandwidth_in", kind: "rate" },
  "limits.connections_per_client": { title: "proxyform.limits.connections", kind: "number" },
  "limits.requests_per_minute": { title: "proxyform.limits.requests", kind: "number" },
  "policy": { title: "accounts.policy", kind: "policies" },
  "pool": { title: "proxyform.pool", kind: "pools" },
  "auth.enabled": { title: "proxyform.auth.enabled", kind: "switch" },
  "sleep_after": { title: "proxyform.sleep_after", kind: "seconds" },
  "workers": { title: "proxyform.workers", kind: "text" },
  "settings.timeout": { title: "proxyform.timeout", kind: "seconds" },
  "settings.max_connections": { title: "proxyform.max_connections", kind: "number" },
} satisfies Record<string, { title: Key; kind: Kind }>;
export type ChangedField = keyof typeof FIELDS;

/** What was typed; `text` is a word or the name of an object, empty for none. */
export interface Typed {
  number: number | null;
  text: string;
  on: boolean;
}

/** The change as the API takes it; null while there is no value. */
export function changeOf(field: ChangedField, { number, text, on }: Typed): ProxySet | null {
  const { kind } = FIELDS[field];
  const word = text.trim();
  const value = kind === "switch" ? on : kind === "policies" || kind === "pools" ? word || null : kind === "text" ? (/^\d+$/.test(word) ? Number(word) : word) : number;
  if (value === "" || (value === null && kind !== "policies" && kind !== "pools")) return null;
  const [first, second] = field.split(".") as [string, string?];
  return { [first]: second === undefined ? value : { [second]: value } } as ProxySet;
}

export interface Trial {
  changed: number;
  same: number;
  /** Proxies that it is refused for, by reason. */
  refused: Failure[];
}

/** What a change would do; nothing is changed. Throws `ApiError`, also for a value that is wrong for each of them. */
export async function tried(chosen: readonly Chosen[], set: ProxySet): Promise<Trial> {
  const body = { update: [{ where: { ids: chosen.map(({ id }) => id) }, set }] };
  const { summary, refused } = await data(api.POST("/api/v1/proxies/batch", { params: { query: { dry_run: "true" } }, body: body as never }));
  return { changed: summary.update, same: summary.unchanged, refused: byReason(refused) };
}

export function byReason(refused: readonly Schemas["RefusedChange"][]): Failure[] {
  const found = new Map<string, Failure>();
  for (const { id, name, field, error } of refused) {
    const reason = `${field}: ${error}`;
    const one = found.get(reason) ?? { reason, requestId: null, objects: [] };
    found.set(reason, { ...one, objects: id === null ? one.objects : [...one.objects, { id, name: name ?? id }] });
  }
  return [...found.values()];
}

/** All proxies that match the filters of the list, whether they are loaded or not. Throws `ApiError`. */
export async function matching(filters: { q: string; status: string; protocol: string; tag: readonly string[] }): Promise<Chosen[]> {
  const given = Object.entries(filters).filter(([, value]) => value.length);
  const where = given.length ? Object.fromEntries(given) : { all: true };
  const { changes } = await data(api.POST("/api/v1/proxies/batch", { params: { query: { dry_run: "true" } }, body: { update: [{ where, set: {} }] } as never }));
  return changes.map(({ id, name }) => ({ id: id ?? "", name }));
}
