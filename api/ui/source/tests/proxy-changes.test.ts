import { describe, expect, it } from "vitest";
import { byReason, changeOf, FIELDS } from "../src/screens/proxies/change";

const typed = (value: object) => ({ number: null, text: "", on: false, ...value });

describe("a change of many proxies", () => {
  it("has the field as the API nests it", () => {
    expect(changeOf("limits.bandwidth_out", typed({ number: 0 }))).toEqual({ limits: { bandwidth_out: 0 } });
    expect(changeOf("sleep_after", typed({ number: 60 }))).toEqual({ sleep_after: 60 });
    expect(changeOf("auth.enabled", typed({}))).toEqual({ auth: { enabled: false } });
    expect(changeOf("policy", typed({ text: "people" }))).toEqual({ policy: "people" });
  });
  it("takes policy and pool away, and is none where a value is missing", () => {
    expect([changeOf("policy", typed({})), changeOf("pool", typed({}))]).toEqual([{ policy: null }, { pool: null }]);
    const others = (Object.keys(FIELDS) as (keyof typeof FIELDS)[]).filter((field) => !["policy", "pool", "auth.enabled"].includes(field));
    expect(others.map((field) => changeOf(field, typed({})))).toEqual(others.map(() => null));
  });
  it("has workers as a number or a word", () => {
    expect([changeOf("workers", typed({ text: " 4 " })), changeOf("workers", typed({ text: "auto" }))]).toEqual([{ workers: 4 }, { workers: "auto" }]);
  });
  it("groups what is refused by its reason", () => {
    const refused = ["a", "b", "c"].map((id) => ({ id, name: `name ${id}`, field: "pool", error: id === "b" ? "other" : "none" }));
    expect(byReason([...refused, { id: null, name: null, field: "proxies", error: "too many" }])).toEqual([
      { reason: "pool: none", requestId: null, objects: [{ id: "a", name: "name a" }, { id: "c", name: "name c" }] },
      { reason: "pool: other", requestId: null, objects: [{ id: "b", name: "name b" }] },
      { reason: "proxies: too many", requestId: null, objects: [] },
    ]);
  });
});
