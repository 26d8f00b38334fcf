import { expect, test } from "vitest";
import { changes, differences, merged } from "../src/lib/differences";

test("differences are named by the path of the field", () => {
  const before = { name: "a", settings: { timeout: 30, keep_alive: true }, tags: ["x"], upstreams: [{ host: "a" }, { host: "b" }] };
  const after = { name: "a", settings: { timeout: 60, keep_alive: true }, tags: ["x", "y"], upstreams: [{ host: "c" }] };
  expect(differences(before, after)).toEqual([
    { path: "settings.timeout", before: 30, after: 60 },
    { path: "tags", before: ["x"], after: ["x", "y"] },
    { path: "upstreams[0].host", before: "a", after: "c" },
    { path: "upstreams[1]", before: { host: "b" }, after: undefined },
  ]);
  expect(differences(before, structuredClone(before))).toEqual([]);
});

test("entries of a list are known by their names: what is moved, added, removed or changed is one difference each", () => {
  const rules = (names: string, use = "deny") => ({ rules: [...names].map((name) => ({ name, use: name === "x" ? use : "deny" })) });
  const moved = (name: string, before: number, after: number) => ({ path: `rules[${name}].place`, before, after });
  expect(differences(rules("abcd"), rules("dabc"))).toEqual([moved("d", 4, 1)]);
  expect(differences(rules("abcd"), rules("bcda"))).toEqual([moved("a", 1, 4)]);
  expect(differences(rules("abc"), rules("cba"))).toHaveLength(2);
  expect(differences(rules("abcd"), rules("acd"))).toEqual([{ path: "rules[b]", before: { name: "b", use: "deny" }, after: undefined }]);
  expect(differences(rules("bc"), rules("abc"))).toEqual([{ path: "rules[a]", before: undefined, after: { name: "a", use: "deny" } }]);
  expect(differences(rules("axb", "direct"), rules("xab"))).toEqual([moved("x", 2, 1), { path: "rules[x].use", before: "direct", after: "deny" }]);
  expect(differences(rules("aab"), rules("baa"))).toHaveLength(2);
  const many = Array.from({ length: 10_000 }, (_, index) => ({ name: String(index) }));
  expect(differences(many, [...many].reverse())).toHaveLength(9_999);
});

test("a change has the fields that differ: objects by field, lists whole", () => {
  const before = { name: "a", settings: { timeout: 30, keep_alive: true }, tags: ["x"], limits: null };
  const after = { name: "a", settings: { timeout: 60, keep_alive: true }, tags: [], limits: { bandwidth_in: 1 } };
  expect(changes<object>(before, after)).toEqual({ settings: { timeout: 60 }, tags: [], limits: { bandwidth_in: 1 } });
});

test("changes of two people are merged field by field; where both changed one, the second wins", () => {
  const before = { a: 1, b: { c: 1, d: 1 }, list: ["x"], none: null as string | null };
  const theirs = { a: 2, b: { c: 1, d: 2 }, list: ["x", "y"], none: null };
  expect(merged(before, { ...before, b: { c: 3, d: 1 } }, theirs)).toEqual({ a: 2, b: { c: 3, d: 2 }, list: ["x", "y"], none: null });
  expect(merged(before, { ...before, a: 5, list: [], none: "n" }, theirs)).toEqual({ a: 5, b: { c: 1, d: 2 }, list: [], none: "n" });
  expect(merged(before, before, theirs)).toEqual(theirs);
});
