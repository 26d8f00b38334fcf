import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api/errors";
import { fieldWords, laterRevisions, objectWords, states } from "../src/screens/history/object";
import { changedWords } from "../src/lib/revision";

const revision = (action: "create" | "update" | "delete", fields: string[] = []) => ({ objects: [{ id: "other", action: "delete" as const, fields: [] }, { id: "one", action, fields }] });

describe("a revision in words", () => {
  const made = (id: string, kind = "account", action = "create", fields: string[] = []) => ({ id, name: id, kind, action, fields });
  const of = (objects: unknown[], create: number, update = 0, kinds = ["account"]) => changedWords({ objects, kinds, summary: { create, update, delete: 0 } } as never);
  it("names few objects, and counts many", () => {
    expect(of([made("paula"), made("office", "proxy", "update", ["port", "tags"])], 1, 1, ["account", "proxy"])).toBe("Account paula: created · Proxy office: port, tags");
    expect(of(Array.from({ length: 20 }, (_, n) => made(`a${n}`)), 990)).toBe("990 accounts created");
    expect(of(Array.from({ length: 4 }, (_, n) => made(`a${n}`, "account", n ? "create" : "update")), 3, 1)).toBe("3 accounts created · 1 account changed");
    expect(of([...Array.from({ length: 4 }, (_, n) => made(`a${n}`)), made("basic", "plan", "update")], 4, 1, ["account", "plan"])).toBe("4 accounts created · 1 plan changed");
    expect(of(Array.from({ length: 20 }, (_, n) => made(`a${n}`)), 40, 2, ["account", "plan"])).toBe("40 created · 2 changed: Account, Plan");
  });
  it("names the one that a filter is about", () => {
    expect(of([made("paula")], 990)).toBe("Account paula: created · 989 more");
  });
});

describe("what stands in the way of an undo", () => {
  it("is a field, and the revisions to undo first", () => {
    expect(fieldWords("policies.policy_0f.rules[no ads].mode")).toBe("rules[no ads].mode");
    expect([fieldWords("settings.logging.level"), fieldWords("proxies.prx_0f")]).toEqual(["logging.level", ""]);
    expect(laterRevisions("was changed since in the proxy 'a' by revision 9 (greta); undo that first, or change it by hand")).toEqual([9]);
    expect(laterRevisions("was changed since by the revisions 12 (a (b)), 10 (x, y), 9 (greta) and earlier ones; undo these first")).toEqual([12, 10, 9]);
    expect(laterRevisions("the pool 'europe' would be deleted, and the proxy 'first' names it")).toEqual([]);
  });
});

describe("the history of an object", () => {
  it("names the fields that a revision changed, or what became of the object", () => {
    expect(objectWords(revision("update", ["port", "tags"]), "one")).toBe("port, tags");
    expect(objectWords(revision("update", ["a", "b", "c", "d", "e", "f", "g", "h"]), "one")).toBe("a, b, c, d, e, f, 2 more");
    expect(objectWords(revision("create"), "one")).toBe("created");
    expect(objectWords(revision("create"), "missing")).toBe("");
  });
  it("has the states around a revision, without the times of changes", async () => {
    const documents: Record<number, Record<string, unknown> | null> = { 1: null, 2: { port: 1, updated_at: "a" }, 3: { port: 2, updated_at: "b" } };
    const at = async (number: number) => ({ document: documents[number] ?? null });
    expect(await states(at, 3)).toEqual({ before: { port: 1 }, after: { port: 2 } });
    expect(await states(at, 2)).toEqual({ before: {}, after: { port: 1 } });
    expect(await states(at, 1)).toEqual({ before: {}, after: {} });
  });
  it("has no state before the first revision that is kept", async () => {
    const at = async (number: number) => {
      if (number < 7) throw new ApiError({ status: 404, code: "NOT_FOUND", message: "", requestId: null, details: null });
      return { document: { port: 1 } };
    };
    expect(await states(at, 7)).toBeNull();
  });
});
