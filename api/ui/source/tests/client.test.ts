import { expect, test } from "vitest";
import { Remembered } from "../src/api/client";

type Reply = { data?: { success: true; data: { n: number } }; error?: unknown; response: Response };
const full = (n: number, etag: string): Reply => ({ data: { success: true, data: { n } }, response: new Response(null, { status: 200, headers: { ETag: etag } }) });
const unchanged: Reply = { response: new Response(null, { status: 304 }) };

test("what has not changed is the same object, asked for with its ETag", async () => {
  const remembered = new Remembered<Reply>();
  const sent: Record<string, string>[] = [];
  const ask = (reply: Reply) => remembered.get((headers) => (sent.push(headers), Promise.resolve(reply)));
  const first = await ask(full(1, '"a"'));
  expect(first).toEqual({ n: 1 });
  expect(await ask(unchanged)).toBe(first);
  expect(await ask(full(2, '"b"'))).toEqual({ n: 2 });
  await ask(unchanged);
  expect(sent).toEqual([{}, { "If-None-Match": '"a"' }, { "If-None-Match": '"a"' }, { "If-None-Match": '"b"' }]);
});

test("a failure is thrown and what was remembered stays", async () => {
  const remembered = new Remembered<Reply>();
  await remembered.get(() => Promise.resolve(full(1, '"a"')));
  const failed: Reply = { error: { error: { code: "INTERNAL_ERROR", message: "no" } }, response: new Response(null, { status: 500 }) };
  await expect(remembered.get(() => Promise.resolve(failed))).rejects.toMatchObject({ status: 500, code: "INTERNAL_ERROR" });
  expect(await remembered.get(() => Promise.resolve(unchanged))).toEqual({ n: 1 });
});
