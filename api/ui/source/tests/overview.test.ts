import { expect, test } from "vitest";
import { problems } from "../src/lib/problems.svelte";
import { session } from "../src/lib/session.svelte";
import { placeOf, wordsOf, type Entry } from "../src/screens/overview/attention";
import { drawn, placesOf, TARGET, type Flow, type FlowNode } from "../src/screens/overview/flow";
import { moved, timesOf } from "../src/screens/overview/overview";
import { catalogue } from "../src/texts/catalogue.svelte";

test("the values of a series are a step apart", () => {
  expect(timesOf({ start: "1970-01-01T00:01:00Z", step: 10, requests_per_second: [1, null, 3] })).toEqual([60, 70, 80]);
});

test("what is missing does not count in a mean", () => {
  expect(moved.mean([1, null, 3])).toBe(2);
  expect(moved.mean([null])).toBe(0);
});

const ENTRY: Entry = { severity: "warning", kind: "list", id: "lst_1", name: "ads", reason: "list_fetch_failed", error: "in English", since: null, count: 1, parts: [], upstream: null, fix: "fetch", detail: "404", percent: null, ends_at: null, fetched_at: null };
const SAID: [Partial<Entry>, string, string][] = [
  [{}, "404. It has no content yet, so rules that deny it deny everything.", "„404“. Sie hat noch keinen Inhalt; Regeln, die sie verbieten, verbieten alles."],
  [{ kind: "pool", reason: "upstream_down", count: 2, parts: ["paris", "rome"], detail: "refused" }, "2 upstreams, paris, rome: refused", "2 Upstreams, paris, rome: „refused“"],
  [{ kind: "proxy", reason: "upstream_down", count: 7, parts: ["a"], detail: "refused" }, "7 upstreams, a, …: refused", "7 Upstreams, a, …: „refused“"],
  [{ kind: "pool", reason: "upstream_down", parts: ["a"], detail: "the upstream a is down" }, "the upstream a is down", "„the upstream a is down“"],
  [{ kind: "proxy", reason: "list_unreadable", count: 2, parts: ["ads", "mail"], detail: "empty" }, "2 lists, ads, mail: empty", "2 Listen, ads, mail: „empty“"],
  [{ kind: "pool", reason: "pool_fetch_failed", detail: "404" }, "404. It has no upstreams yet, so nothing can be reached through it.", "„404“. Er hat noch keine Upstreams; durch ihn ist nichts erreichbar."],
  [{ kind: "account", reason: "quota_reached", count: 7, parts: ["ada", "bob"] }, "ada, bob, … have used up their quotas.", "ada, bob, … haben ihre Kontingente aufgebraucht."],
  [{ kind: "disk", reason: "disk_full", percent: 93 }, "93 % in use", "93 % belegt"],
  [{ kind: "user", reason: "first_password" }, "The first password is still in use, and stored in a file.", "Das erste Passwort gilt noch und steht in einer Datei."],
  [{ kind: "webhook", reason: "deliveries_given_up", detail: "proxy.down" }, "Deliveries were given up, most recently of proxy.down.", "Zustellungen wurden aufgegeben, zuletzt von proxy.down."],
  [{ kind: "actor", reason: "process", detail: null }, "in English", "„in English“"],
];

test("what needs attention is said in the language of the page", async () => {
  for (const [language, place] of [["en", 1], ["de", 2]] as const) {
    await catalogue.choose(language);
    for (const row of SAID) expect(wordsOf({ ...ENTRY, ...row[0] })).toBe(row[place]);
  }
  await catalogue.choose("en");
});

test("each entry leads to the screen of its resource, and none where there is none or no right to it", () => {
  session.who = { id: "usr_1", username: "x", role: "operator", permissions: ["proxy.read", "settings.read"] } as never;
  const place = (kind: Entry["kind"], id: string | null) => placeOf({ ...ENTRY, kind, id });
  expect([place("list", "lst_1"), place("pool", "pool_1"), place("certificate", "prx_1"), place("certificate", null), place("webhook", "wh_1")]).toEqual(["/ui/rules/lists/lst_1", "/ui/proxies/pools/pool_1", "/ui/proxies/prx_1", "/ui/settings", "/ui/settings/webhooks/wh_1"]);
  expect([place("account", "acc_1"), placeOf({ ...ENTRY, kind: "account", id: null, reason: "quota_reached" })]).toEqual(["/ui/accounts/acc_1", "/ui/accounts?status=quota_reached"]);
  expect([place("disk", null), place("actor", "logs"), place("user", "usr_1")]).toEqual([null, null, null]);
});

test("what needs attention is counted where it is dealt with, and all of it at the overview", () => {
  const entries = [ENTRY, { ...ENTRY, kind: "proxy", severity: "error" }, { ...ENTRY, kind: "pool" }, { ...ENTRY, kind: "certificate", id: null }, { ...ENTRY, kind: "disk", id: null }] as Entry[];
  problems.set({ total: 7, entries });
  expect(["overview", "proxies", "pools", "lists", "settings", "logs"].map((area) => problems.at(area))).toEqual([{ n: 7, severe: true }, { n: 1, severe: true }, { n: 1, severe: false }, { n: 1, severe: false }, { n: 1, severe: false }, null]);
  expect(problems.at("proxies", "pools")).toEqual({ n: 2, severe: true });
  problems.set({ total: 0, entries: [] });
  expect(problems.at("overview")).toBeNull();
});

const node = (kind: string, name: string | null, more: object = {}) => ({ key: `${kind}:${name}`, kind, id: "prx_1", name, rate_in: 0, rate_out: 1, requests: 1, refused: 0, others: 0, ...more }) as unknown as FlowNode;

test.each<[FlowNode, string | null, string | null]>([
  [node("proxy", "office"), "/ui/proxies/prx_1", "/ui/logs?range=5m&proxy=prx_1"],
  [node("account", "bob"), "/ui/accounts?q=bob", "/ui/logs?range=5m&user=bob"],
  [node("account", null), null, null],
  [node("pool", "eu"), "/ui/proxies/pools?q=eu", null],
  [node("target", "a.example"), null, "/ui/logs?range=5m&target=a.example"],
  [node("target", "a.example", { others: 3 }), null, null],
])("a node of the flow leads to what it is of, by filters that the screens have: %o", (of, page, log) => {
  expect(placesOf(of)).toEqual({ page, log });
});

test("the targets of the lowest bars do not overlap", () => {
  const targets = Array.from({ length: 9 }, (_, index) => node("target", `t${index}`, { rate_out: index ? 1 : 1e6 }));
  const way = [node("account", "bob"), node("proxy", "office"), node("direct", null)];
  const link = (source: FlowNode, target: FlowNode) => ({ source: source.key, target: target.key, rate_in: 0, rate_out: target.rate_out, requests: 1, refused: 0 });
  const links = [link(way[0]!, way[1]!), link(way[1]!, way[2]!), ...targets.map((target) => link(way[2]!, target))];
  const flow = { accounts: [way[0]], proxies: [way[1]], exits: [way[2]], targets, links, exact: true } as unknown as Flow;
  const middles = drawn(flow, "bytes", 900, 400).nodes.filter(({ node: { kind } }) => kind === "target").map(({ y, height }) => [y + height / 2, Math.max(TARGET, height) / 2] as const);
  expect(middles).toHaveLength(9);
  middles.slice(1).forEach(([middle, half], index) => expect(middle - half).toBeGreaterThanOrEqual(middles[index]![0] + middles[index]![1] - 1e-6));
});
