import { expect, test } from "vitest";
import { changes, differences } from "../src/lib/differences";

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
