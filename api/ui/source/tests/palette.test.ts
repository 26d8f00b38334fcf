import { afterEach, expect, test } from "vitest";
import type { Area } from "../src/areas";
import { commandOf, question, rankOf, recentOf, remember, sectionsOf, type Entry, type Kind, type Result } from "../src/palette/entries";
import { catalogue } from "../src/texts/catalogue.svelte";

const all = () => true;
const result = (kind: Kind, name: string, more: Partial<Result> = {}): Result => ({ kind, id: `${kind}_1`, name, detail: "", field: "name", match: "prefix", ...more });
const area = (key: string, title: Area["title"], path: string): Area => ({ key, title, path, icon: "logs", permission: null, routes: [], shortcut: key[0]! });
const AREAS = [area("logs", "shell.area.logs", "/logs"), area("proxies", "shell.area.proxies", "/proxies")];
const shown = (typed: string, results: readonly Result[] = [], may: (permission: string) => boolean = all) =>
  sectionsOf(typed, results, AREAS, may, []).map(({ key, entries }) => [key, entries.map(({ title }) => title)]);
const deeds = (typed: string, results: readonly Result[]) => sectionsOf(typed, results, AREAS, all, []).flatMap(({ entries }) => entries.map(({ does }) => does));

afterEach(() => catalogue.choose("en"));

test.each([
  ["office", "Office", 0],
  ["office-2", "off", 1],
  ["the office", "off", 2],
  ["backoffice", "off", 3],
  ["Übersicht", "uber", 1],
  ["abc", "d", null],
])("%s has %s in its place", (text, typed, rank) => expect(rankOf(text, typed)).toBe(rank));

test.each([
  ["restart office", "restart", "office"],
  ["  RESTART   the office ", "restart", "the office"],
  ["restart", "restart", ""],
  ["stop x", "stop", "x"],
  ["start x", "start", "x"],
  ["block casino.example", "block", "casino.example"],
  ["why alice", "why", "alice"],
  ["new credential for build", "credential", "build"],
  ["new credential build", "credential", "build"],
])("%j is an action and what it is done to", (typed, verb, rest) => expect(commandOf(typed, all)).toEqual({ verb, rest }));

test.each(["restarted", "stopwatch", "new proxy", "office", ""])("%j is none", (typed) => expect(commandOf(typed, all)).toBeNull());

test("German has words of its own, and takes the English ones", async () => {
  await catalogue.choose("de");
  for (const typed of ["neu starten office", "restart office"]) expect(commandOf(typed, all)).toEqual({ verb: "restart", rest: "office" });
  expect(commandOf("neuer Zugangsschlüssel für Büro", all)).toEqual({ verb: "credential", rest: "Büro" });
});

test("the service is asked for what an action is done to, and of kinds for which there is the action", () => {
  expect(question("restart office", all)).toEqual({ q: "office", kinds: ["proxy"] });
  expect(question("why al", all)).toEqual({ q: "al", kinds: ["account", "proxy"] });
  expect(question("office", all)).toEqual({ q: "office", kinds: [] });
  expect([question(" ", all), question("restart ", all)]).toEqual([null, null]);
  expect(question("x".repeat(150), all)!.q).toHaveLength(100);
});

test("without the permission there is no action, and its word is a text as any other", () => {
  const reader = (permission: string) => permission.endsWith(".read");
  expect(commandOf("restart office", reader)).toBeNull();
  expect(commandOf("why office", reader)).toEqual({ verb: "why", rest: "office" });
  expect(shown("", [], reader)).toEqual([["actions", ["Why was … refused?"]], ["screens", ["Logs", "Proxies"]]]);
  expect(shown("new", [], reader)).toEqual([]);
  expect(shown("office", [result("proxy", "office")], reader)).toEqual([["proxy", ["office"]], ["with", ["What did office refuse?"]]]);
});

test("actions lead to what does them", () => {
  const proxy = { ...result("proxy", "office"), id: "prx_1" };
  const account = { ...result("account", "a b"), id: "acc_1" };
  expect(deeds("restart off", [proxy])).toEqual([{ act: "restart", id: "prx_1", name: "office" }]);
  expect(deeds("why a", [account, proxy])).toEqual([{ go: "/logs?user=a+b&outcome=refused" }, { go: "/logs?proxy=prx_1&outcome=refused" }]);
  expect(deeds("new credential for a", [account, proxy])).toEqual([{ go: "/accounts/acc_1/credentials?mint=1" }]);
});

test("a host can be blocked that was not seen before", () => {
  const seen = { ...result("host", "www.casino.example"), id: "www.casino.example", detail: "3 requests in the last hour" };
  expect(shown("block casino.example", [seen])).toEqual([["actions", ["Block casino.example", "Block www.casino.example"]]]);
  expect(shown("block www.casino.example", [seen])).toEqual([["actions", ["Block www.casino.example"]]]);
  expect(shown("block casino", [])).toEqual([]);
  expect(deeds("block casino.example", [])).toEqual([{ go: "/policies?block=casino.example" }]);
});

test("the best group comes first, and what can be done with the first result behind it", () => {
  const results = [result("proxy", "log", { match: "exact", detail: "http 127.0.0.1:3128, stopped" }), result("pool", "log-pool")];
  expect(shown("log", results)).toEqual([
    ["proxy", ["log"]],
    ["screens", ["Logs"]],
    ["pool", ["log-pool"]],
    ["with", ["Restart log", "Start log", "What did log refuse?"]],
  ]);
  expect(shown("log", [result("proxy", "x-log", { match: "word" })])).toEqual([["screens", ["Logs"]], ["proxy", ["x-log"]]]);
  expect(shown("new pr")).toEqual([["actions", ["New proxy"]]]);
  expect(shown("undo")).toEqual([["actions", ["Undo the last change"]]]);
});

test("a result leads to its screen, and its line is in words of the page", async () => {
  await catalogue.choose("de");
  const results = [
    result("proxy", "a/b", { id: "prx_1", detail: "http 127.0.0.1:3128, running" }),
    result("host", "a&b.example", { id: "a&b.example", detail: "2 requests in the last hour" }),
    result("setting", "logging.level", { id: "logging.level", detail: "active, running" }),
  ];
  const found = sectionsOf("a", results, AREAS, () => false, []).flatMap(({ entries }) => entries);
  const lines = Object.fromEntries(found.map(({ title, detail, does }) => [title, [detail, does]]));
  expect(lines["a/b"]).toEqual(["http 127.0.0.1:3128, läuft", { go: "/proxies/prx_1" }]);
  expect(lines["a&b.example"]).toEqual(["2 Anfragen in der letzten Stunde", { go: "/logs?target=a%26b.example" }]);
  expect(lines["logging.level"]).toEqual(["active, running", { go: "/settings/keys?q=logging.level" }]);
});

test("what was chosen comes back, the last one first, for its user alone", () => {
  const entry = (key: string): Entry => ({ key, icon: "logs", title: key, detail: "", does: { go: `/${key}` } });
  for (const key of ["a", "b", "c", "d", "e", "f", "g", "b"]) remember("usr_1", entry(key));
  remember("usr_1", { ...entry("typed"), does: { type: "restart " } });
  expect(recentOf("usr_1").map(({ key }) => key)).toEqual(["b", "g", "f", "e", "d", "c"]);
  expect(recentOf("usr_2")).toEqual([]);
  remember("usr_2", entry("x"));
  expect([recentOf("usr_1"), recentOf("usr_2").length]).toEqual([[], 1]);
  expect(sectionsOf("", [], AREAS, all, recentOf("usr_2"))[0]).toMatchObject({ key: "recent", entries: [{ key: "x" }] });
});

test("a screen is found by the name of its place, too", () => {
  const lists: Area = { ...area("lists", "shell.area.lists", "/rules/lists"), place: "rules" };
  for (const typed of ["lis", "rul"]) expect(sectionsOf(typed, [], [lists], () => false, []).map(({ entries }) => entries.map(({ title }) => title))).toEqual([["Lists"]]);
});
