import { describe, expect, it } from "vitest";
import { ApiError } from "../src/api/errors";
import { Bulk } from "../src/lib/bulk.svelte";

const objects = (n: number) => Array.from({ length: n }, (_, index) => ({ id: `id${index}`, name: `name ${index}` }));
const refused = (status: number, details: unknown, message = "no") => new ApiError({ status, code: "X", message, requestId: "req_1", details });

describe("one action on many objects", () => {
  it("goes on after a failure, and groups failures by their reason", async () => {
    const bulk = new Bulk();
    const failed = await bulk.each("Stop", objects(9), async (id) => {
      if (id === "id2" || id === "id5") throw refused(409, null, "is busy");
    });
    expect([...failed].sort()).toEqual(["id2", "id5"]);
    expect(bulk.outcome).toMatchObject({ title: "Stop", total: 9, done: 7, left: 0 });
    expect(bulk.outcome?.failures).toHaveLength(1);
    expect(bulk.outcome?.failures[0]).toMatchObject({ reason: "is busy", requestId: "req_1" });
    expect(bulk.outcome?.failures[0]?.objects.map((each) => each.name).sort()).toEqual(["name 2", "name 5"]);
  });
  it("has nothing to report when all is done", async () => {
    const bulk = new Bulk();
    expect(await bulk.each("Stop", objects(3), async () => undefined)).toEqual(new Set());
    expect([bulk.outcome, bulk.running]).toEqual([null, null]);
  });
  it("leaves out what it has not begun when it is ended", async () => {
    const bulk = new Bulk();
    const failed = await bulk.each("Stop", objects(20), async () => bulk.end());
    expect(bulk.outcome?.left).toBe(failed.size);
    expect(bulk.outcome!.done + failed.size).toBe(20);
    expect(bulk.outcome!.done).toBeLessThanOrEqual(4);
  });
  it("waits as long as the service asks for", async () => {
    const waited: number[] = [];
    const bulk = new Bulk(async (seconds) => void waited.push(seconds));
    let first = true;
    await bulk.each("Stop", objects(1), async () => {
      if (!first) return;
      first = false;
      throw refused(429, { retry_after: 7 });
    });
    expect([waited, bulk.outcome, bulk.done]).toEqual([[7], null, 1]);
  });
  it("repeats a batch without the entries that an error names", async () => {
    const bulk = new Bulk();
    const sent: string[][] = [];
    const failed = await bulk.batches("Tags", objects(5), 3, async (ids) => {
      sent.push(ids);
      if (ids.includes("id1")) throw refused(400, { errors: [{ field: "update[1].tags", error: "too many" }] });
      if (ids.includes("id4")) throw refused(400, { field: "ids[1]", error: "there is no such proxy" });
    });
    expect(sent).toEqual([["id0", "id1", "id2"], ["id0", "id2"], ["id3", "id4"], ["id3"]]);
    expect([...failed]).toEqual(["id1", "id4"]);
    expect(bulk.outcome?.failures.map((each) => each.reason)).toEqual(["tags: too many", "there is no such proxy"]);
  });
  it("fails the whole batch where the error names no entry", async () => {
    const bulk = new Bulk();
    const failed = await bulk.batches("Tags", objects(2), 10, async () => Promise.reject(refused(500, null, "The disk is full")));
    expect(failed.size).toBe(2);
    expect(bulk.outcome?.failures[0]?.reason).toBe("The disk is full");
  });
});
