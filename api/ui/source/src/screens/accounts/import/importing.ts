/** The request of an import: as JSON lines, or as one JSON document where passwords are given, which lines may not have. */
import { api, data, type ApiError } from "../../../api/client";
import type { Line, Wrong } from "./account_csv";

/** In place of passwords while a file is only checked. */
const SOME_HASH = `$2b$10$${"u".repeat(53)}`;

export interface Imported {
  created: number;
  updated: number;
}

/** Check the lines at the service, which changes nothing. Throws `ApiError`. */
export function checked(lines: readonly Line[]): Promise<Imported> {
  return sentLines(lines.map(({ body: { password, ...rest } }) => (password === undefined ? rest : { ...rest, password_hash: SOME_HASH })), "true");
}

/** Add and change the accounts, all of them or none. Throws `ApiError`. */
export async function applied(lines: readonly Line[]): Promise<Imported> {
  if (!lines.some(({ body }) => "password" in body)) return sentLines(lines.map(({ body }) => body), "false");
  const [create, update] = parts(lines);
  const body = { create: create.map((each) => each.body), update: update.map((each) => each.body) };
  return (await data(api.POST("/api/v1/accounts/import", { body: body as never }))).count;
}

async function sentLines(bodies: readonly object[], dry_run: "true" | "false"): Promise<Imported> {
  const packed = new Blob([bodies.map((each) => JSON.stringify(each) + "\n").join("")]).stream().pipeThrough(new CompressionStream("gzip"));
  const content = await new Response(packed).blob();
  const headers = { "Content-Type": "application/x-ndjson", "Content-Encoding": "gzip" };
  return (await data(api.POST("/api/v1/accounts/import", { params: { query: { dry_run } }, headers, body: content as never, bodySerializer: () => content }))).count;
}

function parts(lines: readonly Line[]): [Line[], Line[]] {
  return [lines.filter(({ body }) => !("id" in body)), lines.filter(({ body }) => "id" in body)];
}

/** What the service says is wrong, with the numbers of lines in the file. */
export function wrongLines(error: ApiError, lines: readonly Line[]): Wrong[] {
  const [create, update] = parts(lines);
  return Object.entries(error.fields).map(([path, text]) => {
    const found = /^(lines|create|update)\[([0-9]+)\]\.?(.*)$/.exec(path);
    if (!found) return { number: null, field: path, error: text };
    const [, kind, index, field = ""] = found;
    const line = kind === "lines" ? lines[Number(index) - 1] : (kind === "create" ? create : update)[Number(index)];
    return { number: line?.number ?? null, field, error: text };
  });
}
