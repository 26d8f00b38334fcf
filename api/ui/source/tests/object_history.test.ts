import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api/errors";
import { objectWords, states } from "../src/screens/history/object";

const revision = (action: "create" | "update" | "delete", fields: string[] = []) => ({ objects: [{ id: "other", action: "delete" as const, fields: [] }, { id: "one", action, fields }] });

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
