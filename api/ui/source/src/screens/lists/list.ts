/** A list of destinations: its requests, and how its form has it. */
import { api, data, tagged, type Schemas } from "../../api/client";
import { linesOf } from "../../lib/format";
import { ifMatch, type ObjectKind } from "../objects/kind";

export type List = Schemas["ListView"];
export type Listed = Schemas["ListedList"];

export const KINDS = ["domains", "networks", "geo"] as const;
export const FORMATS = ["plain", "hosts", "adblock", "rpz"] as const;

export interface ListValue {
  name: string;
  description: string;
  kind: (typeof KINDS)[number];
  from: From;
  /** One entry a line. */
  entries: string;
  source: { url: string; file: string; format: (typeof FORMATS)[number]; interval: number | null; max_bytes: number | null };
}

/** Where the entries come from: the list itself, an address, or a file of the machine. */
export type From = "entries" | "url" | "file";

/** Those that there are for each kind: a database of places is no text. */
export const PLACES: Record<ListValue["kind"], readonly [From, ...From[]]> = { domains: ["entries", "url"], networks: ["entries", "url"], geo: ["url", "file"] };

const blank = (): ListValue => ({
  name: "", description: "", kind: "domains", from: "entries", entries: "",
  source: { url: "", file: "", format: "plain", interval: 86400, max_bytes: 64 * 1024 * 1024 },
});

export const lists: ObjectKind<ListValue, List> = {
  area: "lists",
  blank,
  async get(id, signal) {
    const found = await tagged(api.GET("/api/v1/lists/{list_id}", { params: { path: { list_id: id } }, signal }));
    return { object: found.data.list, warnings: found.data.warnings, etag: found.etag };
  },
  create: async (body) => (await data(api.POST("/api/v1/lists", { body: body as never }))).list.id,
  change: (id, etag, body) => data(api.PATCH("/api/v1/lists/{list_id}", { params: { path: { list_id: id }, header: ifMatch(etag) }, body: body as never })),
  remove: (id) => data(api.DELETE("/api/v1/lists/{list_id}", { params: { path: { list_id: id } } })),
  valueOf({ name, description, kind, entries, source }) {
    const { url, file, format, interval, max_bytes } = { ...blank().source, ...source };
    const from = source === null ? "entries" : file ? "file" : "url";
    return { name, description, kind, from, entries: entries.join("\n"), source: { url: url ?? "", file: file ?? "", format: format === "mmdb" ? "plain" : format, interval, max_bytes } };
  },
  bodyOf,
  shown: ({ from, entries, ...value }) => {
    const { source, ...rest } = value;
    return { ...rest, ...(from === "entries" ? { entries: Object.fromEntries(linesOf(entries).map((each) => [each, each])) } : { source: sourceOf({ ...value, from, entries }) }) };
  },
};

/** The source that the form describes. */
function sourceOf({ kind, from, source: { url, file, format, interval, max_bytes } }: ListValue): Record<string, unknown> {
  return { ...(from === "file" ? { file } : { url }), ...(kind === "geo" ? {} : { format }), interval, max_bytes };
}

/** Entries or a source, whichever the form has chosen; empty numbers of a source stay as they are. */
function bodyOf(before: ListValue, after: ListValue): Record<string, unknown> {
  const fresh = before.name === "";
  const found: Record<string, unknown> = {};
  for (const name of ["name", "description", "kind"] as const) if (fresh || before[name] !== after[name]) found[name] = after[name];
  if (after.from === "entries") {
    if (fresh || before.from !== "entries" || before.entries !== after.entries) found.entries = linesOf(after.entries);
    return found;
  }
  const known = before.from === after.from ? sourceOf(before) : {};
  const source = Object.entries(sourceOf(after)).filter(([name, value]) => value !== null && value !== known[name]);
  if (source.length) found.source = Object.fromEntries(source);
  return found;
}

/** What has a source or not, and how its content is: a list, or the upstreams of a pool. */
export interface Fetched {
  source: object | null;
  status: Schemas["ListStatus"];
}

export type Freshness = "own" | "waiting" | "failed" | "current";

/** How the content of a list is: its own, not fetched yet, kept since the last fetch failed, or as it was fetched. */
export function freshness({ source, status }: Fetched): Freshness {
  if (!source) return "own";
  if (status.last_error !== null) return "failed";
  return status.fetched_at === null ? "waiting" : "current";
}

/** `lists.example` of `https://lists.example/ads.txt`, `places.mmdb` of `/srv/places.mmdb`. */
export function placeName({ url, file }: Pick<NonNullable<Listed["source"]>, "url" | "file">): string {
  try {
    return url ? new URL(url).host : (file?.split("/").at(-1) ?? "");
  } catch {
    return url ?? "";
  }
}
