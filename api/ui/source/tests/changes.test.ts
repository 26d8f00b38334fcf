import { expect, test } from "vitest";
import { merged, type Source } from "../src/screens/history/merged";
import { joined, queriesOf, type Change, type Wanted } from "../src/screens/history/changes";

const NONE: Wanted = { kind: "", q: "", username: "", resource_name: "", address: "", request_id: "", node: "" };

/** Pages of two rows. */
function source(times: number[]): Source<number> & { asked: number } {
  const ask = Object.assign(async (cursor: string | undefined) => {
    ask.asked += 1;
    const first = Number(cursor ?? 0);
    return { rows: times.slice(first, first + 2), next: first + 2 < times.length ? String(first + 2) : null };
  }, { asked: 0 });
  return ask;
}

test("several lists are one in the order of time, and none is read further than it must be", async () => {
  const [often, seldom] = [source([90_000, 80_000, 70_000, 60_000, 50_000]), source([86_000, 10_000, 5000, 0])];
  const all = merged([often, seldom], (time) => time);
  const signal = new AbortController().signal;
  const pages: number[][] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await all(cursor, signal);
    pages.push(page.rows);
    if (page.next === null) break;
    cursor = page.next;
    if (pages.length === 1) expect([often.asked, seldom.asked]).toEqual([1, 1]);
  }
  expect(pages[0]).toEqual([90_000, 86_000]); // 80,000 may have company on the next page
  expect(pages.flat()).toEqual([90_000, 86_000, 80_000, 70_000, 60_000, 50_000, 10_000, 5000, 0]);
  expect([often.asked, seldom.asked]).toEqual([3, 2]);
});

test("the first page is the same when it is asked for again", async () => {
  const all = merged([source([3, 2, 1]), source([2, 1, 0])], (time) => time);
  const signal = new AbortController().signal;
  const first = await all(undefined, signal);
  await all(first.next!, signal);
  expect(await all(undefined, signal)).toEqual(first);
});

const entry = (seq: number, request_id: string | null, node?: string) => ({ entry: { seq, request_id, timestamp: "2026-01-01T00:00:00Z", ...(node && { node }) } }) as never;
const revision = (number: number, request_id: string | null) => ({ revision: { revision: number, request_id, timestamp: "2026-01-01T00:00:00Z" } }) as never;
const short = ({ key, revision: made, entry: written }: Change) => [key, made?.revision ?? null, written?.seq ?? null];

test("what one request has done is one row, with its revision", () => {
  const rows = joined([entry(9, "req_2"), entry(8, "req_1"), revision(4, "req_1"), entry(7, "req_1"), revision(3, null), entry(6, null, "shop")]);
  expect(rows.map(short)).toEqual([["~9", null, 9], ["4", 4, 8], ["3", 3, null], ["~6~shop", null, 6]]);
  expect(rows.map(({ id }) => id)).toEqual(["req_2", "req_1", "3", "~6~shop"]);
});

test.each<[string, Partial<Wanted>, object]>([
  ["everything", {}, { audit: [{}], revisions: [{}] }],
  ["a text, of an object or a user", { q: "x" }, { audit: [{ resource_name: "x" }, { username: "x" }], revisions: [{ object_name: "x" }, { username: "x" }] }],
  ["a text beside a user", { q: "x", username: "u" }, { audit: [{ username: "u", resource_name: "x" }], revisions: [{ username: "u", object_name: "x" }] }],
  ["an object", { resource_name: "o" }, { audit: [{ resource_name: "o" }], revisions: [{ object_name: "o" }] }],
  ["the configuration", { kind: "configuration" }, { audit: [], revisions: [{}] }],
  ["a kind of object", { kind: "pool" }, { audit: [{ resource_type: "pool" }], revisions: [{ kind: "pool" }] }],
  ["sign-ins", { kind: "sign_in" }, { audit: [{ action: "auth.*" }], revisions: [] }],
  ["failures", { kind: "failed" }, { audit: [{ outcome: "failed" }], revisions: [] }],
  ["a request", { request_id: "req_1" }, { audit: [{ request_id: "req_1" }], revisions: [] }],
])("what is asked for: %s", (_name, given, wanted) => expect(queriesOf({ ...NONE, ...given })).toEqual(wanted));
