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
