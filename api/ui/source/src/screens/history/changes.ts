/** What was changed or done, from two sources: revisions, which can be undone, and entries of the audit trail. Those of one request are one row. */
import { api, data, type Schemas } from "../../api/client";
import { merged, type Source } from "./merged";
import { t, tMaybe } from "../../texts";
import { KINDS } from "../../lib/revision";

export type Entry = Schemas["AuditEntry"];
export type Revision = Schemas["RevisionView"];
type Found = { entry: Entry } | { revision: Revision };

/** A row of the list: what one request has done. */
export interface Change {
  /** That of the request, if it has one. */
  id: string;
  /** In the address: the number of the revision, or that of the entry with a `~`, and its node: `12`, `~40`, `~40~shop`. */
  key: string;
  revision: Revision | null;
  entry: Entry | null;
}

/** Kinds of entries: what a revision has, what can't be undone, and by the object. */
export const ENTRIES = ["configuration", "sign_in", "failed", ...KINDS] as const;

export interface Wanted {
  kind: (typeof ENTRIES)[number] | "";
  /** The name of what was changed, or of who did it. */
  q: string;
  username: string;
  resource_name: string;
  address: string;
  request_id: string;
  node: string;
}

/** Entries that are asked for at once, and rows of a page: an import has an entry for each object. */
const AT_ONCE = 200;
const PAGE = 30;
/** Questions for one page, at most. */
const ATTEMPTS = 10;
type Query = Record<string, string | number | undefined>;

const keyOf = ({ seq, node }: Entry): string => ["", seq, node ?? ""].join("~").replace(/~$/, "");
const timeOf = (found: Found): number => Date.parse("entry" in found ? found.entry.timestamp : found.revision.timestamp);

/** What is asked for: a query for each source, and two where a text may be the name of an object or of a user. */
export function queriesOf({ kind, q, username, resource_name, address, request_id, node }: Wanted): { audit: Query[]; revisions: Query[] } {
  const named = (field: string): Query[] => {
    const fixed = { ...(username && { username }), ...(resource_name && { [field]: resource_name }) };
    const open = [...(resource_name ? [] : [field]), ...(username ? [] : ["username"])];
    return q && open.length ? open.map((each) => ({ ...fixed, [each]: q })) : [fixed];
  };
  const object = KINDS.find((each) => each === kind);
  const audit: Query = { ...(object && { resource_type: object }), ...(kind === "sign_in" && { action: "auth.*" }), ...(kind === "failed" && { outcome: "failed" }), ...(address && { address }), ...(request_id && { request_id }), ...(node && { node }) };
  const unknown = kind === "sign_in" || kind === "failed" || address || request_id || node; // a revision is not found by these
  return {
    audit: kind === "configuration" ? [] : named("resource_name").map((each) => ({ ...audit, ...each })),
    revisions: unknown ? [] : named("object_name").map((each) => ({ ...(object && { kind: object }), ...each })),
  };
}

/** Rows of the list, newest first, of a span of time. */
export function changes(wanted: Wanted, start: string, end: string | undefined): Source<Change> {
  const { audit, revisions } = queriesOf(wanted);
  const time = { start_time: start, end_time: end };
  const entries = audit.map((query): Source<Found> => async (cursor, signal) => {
    const found = await data(api.GET("/api/v1/audit", { params: { query: { ...query, ...time, limit: AT_ONCE, cursor } as never }, signal }));
    return { rows: found.audit.map((entry) => ({ entry })), next: found.next_cursor };
  });
  const states = revisions.map((query): Source<Found> => async (cursor, signal) => {
    const found = await data(api.GET("/api/v1/revisions", { params: { query: { ...query, ...time, limit: AT_ONCE, cursor } as never }, signal }));
    return { rows: found.revisions.map((revision) => ({ revision })), next: found.next_cursor };
  });
  const all = merged([...entries, ...states], timeOf);
  return async (cursor, signal) => {
    const found: Found[] = [];
    for (let next = cursor, attempt = 1; ; attempt += 1) {
      const page = await all(next, signal);
      found.push(...page.rows);
      const rows = joined(found);
      if (page.next === null || rows.length >= PAGE || attempt === ATTEMPTS) return { rows, next: page.next };
      next = page.next;
    }
  };
}

/** One row for each request, with the newest of its entries, and for what has none. */
export function joined(found: readonly Found[]): Change[] {
  const rows = new Map<string, Change>();
  for (const each of found) {
    const { request_id } = "entry" in each ? each.entry : each.revision;
    const own = "entry" in each ? keyOf(each.entry) : String(each.revision.revision);
    const id = request_id ?? own;
    const row = rows.get(id) ?? { id, key: own, revision: null, entry: null };
    if ("revision" in each) rows.set(id, { ...row, key: own, revision: each.revision });
    else rows.set(id, { ...row, entry: row.entry ?? each.entry });
  }
  return [...rows.values()];
}

/** Who did it. */
export function whoOf({ actor }: Pick<Entry, "actor">): string {
  return actor.username ?? actor.user_id ?? t(`audit.actor.${actor.type}`);
}

/** What it was done to: `Proxy office`. */
export function resourceOf({ resource }: Entry): string {
  if (!resource) return "–";
  const name = resource.name ?? resource.id;
  return [tMaybe(`history.kind.${resource.type}`, resource.type), ...(name === resource.type ? [] : [name])].join(" ");
}

/** The entry of a key, if it is one. */
export async function entryOf(key: string, signal: AbortSignal): Promise<Entry | null> {
  const [seq, node] = key.slice(1).split("~");
  const found = await data(api.GET("/api/v1/audit", { params: { query: { seq: Number(seq), ...(node ? { node } : {}), limit: 1 } }, signal }));
  return found.audit[0] ?? null;
}
