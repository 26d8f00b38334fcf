/** A pool of upstreams: its requests, and how its form has it. Passwords are not in it: what is left empty stays. */
import { api, data, tagged, type Schemas } from "../../api/client";
import { ifMatch, type ObjectKind } from "../objects/kind";
import { upstreamOf, upstreamValue, type UpstreamValue } from "../proxies/form/value";

export type Pool = Schemas["PoolView"];
export type Listed = Schemas["ListedPool"];

export const POLICIES = ["failover", "round_robin", "least_connections", "sticky", "latency"] as const;
export const FORMATS = ["text", "csv"] as const;
/** Where the upstreams come from: the pool itself, or an address. */
export const PLACES = ["upstreams", "url"] as const;
export const COOLDOWNS = ["connect", "407", "429", "5xx"] as const;

type Span = [number | null, number | null];
export interface PoolValue {
  name: string;
  description: string;
  policy: (typeof POLICIES)[number];
  from: (typeof PLACES)[number];
  /** Those of the pool itself. */
  upstreams: UpstreamValue[];
  source: { url: string; format: (typeof FORMATS)[number]; protocol: Schemas["PoolSourceView"]["protocol"]; interval: number | null; max_bytes: number | null };
  check: { enabled: boolean; interval: number | null; timeout: number | null };
  retry: { attempts: number | null; connect: boolean; statuses: string[] };
  cooldown: Record<(typeof COOLDOWNS)[number], Span>;
}

const blank = (): PoolValue => ({
  name: "", description: "", policy: "failover", from: "upstreams", upstreams: [], check: { enabled: true, interval: 30, timeout: 5 },
  source: { url: "", format: "text", protocol: "http", interval: 3600, max_bytes: 4_000_000 },
  retry: { attempts: 5, connect: true, statuses: ["407", "429", "502", "503"] },
  cooldown: { connect: [1, 60], "407": [60, 600], "429": [30, 300], "5xx": [5, 60] },
});

/** `country=fr, city=paris` */
export const labelText = (labels: Record<string, string>): string => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join(", ");

/** What has no `=` is a label without a value, which the API refuses by its name. */
export function labelsOf(text: string): Record<string, string> {
  const found = text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => {
    const [name = "", ...rest] = each.split("=");
    return [name.trim(), rest.join("=").trim()] as const;
  });
  return Object.fromEntries(found);
}

export const pools: ObjectKind<PoolValue, Pool> = {
  area: "pools",
  blank,
  async get(id, signal) {
    const found = await tagged(api.GET("/api/v1/pools/{pool_id}", { params: { path: { pool_id: id } }, signal }));
    return { object: found.data.pool, warnings: found.data.warnings, etag: found.etag };
  },
  async create(body) {
    const { pool } = await data(api.POST("/api/v1/pools", { body: body as never }));
    if (pool.check.enabled) await api.POST("/api/v1/pools/{pool_id}/check", { params: { path: { pool_id: pool.id } } }).catch(() => undefined); // no proxy uses it yet: what is dead is seen at once
    return pool.id;
  },
  change: (id, etag, body) => data(api.PATCH("/api/v1/pools/{pool_id}", { params: { path: { pool_id: id }, header: ifMatch(etag) }, body: body as never })),
  remove: (id) => data(api.DELETE("/api/v1/pools/{pool_id}", { params: { path: { pool_id: id } } })),
  valueOf({ name, description, policy, upstreams, source, check, retry, cooldown }) {
    const { url, format, protocol, interval, max_bytes } = source ?? blank().source;
    const own = source ? [] : upstreams;
    const spans = Object.fromEntries(COOLDOWNS.map((kind) => [kind, [cooldown[kind][0] ?? null, cooldown[kind][1] ?? null]])) as PoolValue["cooldown"];
    return {
      name, description, policy, from: source ? "url" : "upstreams", source: { url, format, protocol, interval, max_bytes },
      upstreams: own.map((each) => ({ ...upstreamValue(each), labels: labelText(each.labels) })),
      check: { ...check }, retry: { ...retry, statuses: retry.statuses.map(String) }, cooldown: spans,
    };
  },
  bodyOf,
  shown: ({ from, upstreams, source, ...rest }) => from === "url" ? { ...rest, source } : ({ ...rest, upstreams: upstreams.map((each) => ({ ...each, password: each.password && "••••••" })) }),
};

function bodyOf(before: PoolValue, after: PoolValue): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const moved = before.from !== after.from;
  for (const name of ["name", "description", "policy", after.from === "url" ? "source" : "upstreams", "check", "retry", "cooldown"] as const)
    if ((moved && (name === "source" || name === "upstreams")) || JSON.stringify(before[name]) !== JSON.stringify(after[name])) found[name] = part(name, after);
  return found;
}

function part(name: keyof PoolValue, value: PoolValue): unknown {
  if (name === "upstreams") return value.upstreams.map((each) => ({ ...upstreamOf(each), labels: labelsOf(each.labels) }));
  if (name === "check" || name === "source") return without(value[name]);
  if (name === "retry") return without({ ...value.retry, statuses: value.retry.statuses.map(number) });
  if (name === "cooldown") return Object.fromEntries(Object.entries(value.cooldown).filter(([, span]) => !span.includes(null)));
  return value[name];
}

/** Empty numbers stay as they are. */
const without = (fields: object): object => Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));

/** A text that is no number is left to the API's error. */
const number = (text: string): number | string => (/^\d+$/.test(text) ? Number(text) : text);
