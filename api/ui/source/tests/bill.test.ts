import { expect, test } from "vitest";
import { linesOf, monthOf, periodOf, stacked, type Used } from "../src/screens/usage/bill";

const now = Date.parse("2026-01-31T15:00:00Z");
const figures = { requests: 1, connection_seconds: 0, refusals: 0 };
const used = (from: string, username: string, bytes: number, more: Partial<Used> = {}): Used => ({ from: `${from}T00:00:00Z`, to: "", account: username && `acc_${username}`, username, bytes_in: 0, bytes_out: bytes, ...figures, ...more });
const others = (from: string, n: number, bytes: number): Used => ({ from: `${from}T00:00:00Z`, to: "", others: n, bytes_in: bytes, bytes_out: 0, ...figures });

test("months are those of UTC, also over the end of a year", () => {
  expect([monthOf(now), monthOf(now, 1), monthOf(now, 12), monthOf(now, 13)]).toEqual(["2026-01", "2025-12", "2025-01", "2024-12"]);
});

test("a period is a month, or the last days with today as their last one", () => {
  const days = (text: string) => {
    const { start, end, month, step } = periodOf(text, now);
    return [...[start, end].map((time) => new Date(time).toISOString().slice(0, 10)), month, step];
  };
  expect(days("2025-12")).toEqual(["2025-12-01", "2026-01-01", "2025-12", "day"]);
  expect(days("7d")).toEqual(["2026-01-25", "2026-02-01", null, "day"]);
  expect(days("1y")).toEqual(["2025-02-01", "2026-02-01", null, "month"]);
  for (const none of ["", "2026-13", "2026-1", "next", "24h"]) expect(days(none)).toEqual(["2026-01-01", "2026-02-01", "2026-01", "day"]);
});

test("days are stacked by those that have used most, whose order is that of the whole time, and all others", () => {
  const rows = [used("2026-01-02", "bob", 5), used("2026-01-02", "ann", 9), others("2026-01-02", 3, 2), used("2026-01-03", "bob", 70)];
  const { keys, bars } = stacked(rows, "account", periodOf("2026-01", now));
  expect(keys).toEqual(["acc_bob", "acc_ann"]);
  expect(bars.length).toBe(31);
  expect(bars.slice(0, 4).map((bar) => bar.parts.map(({ kind, n }) => [kind, n]))).toEqual([[], [["s1", 5], ["s2", 9], ["others", 2]], [["s1", 70]], []]);
  expect(new Date(bars[1]!.from).getDate()).toBe(2); // in any zone
  expect(stacked([], "plan", periodOf("1y", now)).bars.length).toBe(12);
});

test("a bill has a line for each, one for all others and the total, whose amount is the sum of the lines", () => {
  const rows = [used("2026-01-01", "ann", 1.004e9), used("2026-01-01", "bob", 1.004e9), others("2026-01-01", 2, 1.004e9)];
  const total = { bytes_in: 1.004e9, bytes_out: 2.008e9, ...figures };
  const lines = linesOf({ usage: rows, total }, "account", 1);
  expect(lines.map(({ kind, key, amount }) => [kind, key, amount])).toEqual([["one", "acc_ann", 1], ["one", "acc_bob", 1], ["others", "", 1], ["total", "", 3]]);
  expect(lines[0]!.share).toBeCloseTo(1 / 3);
  expect(linesOf({ usage: rows, total }, "tag", 1).at(-1)!.amount).toBe(3.01); // one account may be in several lines
  expect(linesOf({ usage: rows, total }, "account", null).map((line) => line.amount)).toEqual([null, null, null, null]);
  expect(linesOf({ usage: [], total: { ...total, bytes_in: 0, bytes_out: 0 } }, "account", 2).map(({ share, amount }) => [share, amount])).toEqual([[0, 0]]);
});

test("lines are sorted by any of their figures; the others and the total stay last", () => {
  const rows = [used("2026-01-01", "ann10", 3), used("2026-01-01", "Ann9", 2, { requests: 20 }), others("2026-01-01", 2, 9)];
  const keys = (sort: string) => linesOf({ usage: rows, total: { bytes_in: 9, bytes_out: 5, ...figures } }, "account", null, sort).map((line) => line.row.username ?? line.kind);
  expect(keys("")).toEqual(["ann10", "Ann9", "others", "total"]);
  expect(keys("username")).toEqual(["Ann9", "ann10", "others", "total"]);
  expect(keys("-requests")).toEqual(["Ann9", "ann10", "others", "total"]);
  expect(keys("bytes")).toEqual(["Ann9", "ann10", "others", "total"]);
});
