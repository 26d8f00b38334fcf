import { expect, test } from "vitest";
import { count, duration, milliseconds, percent, rate, relative, short, size, utc } from "../src/lib/format";

test.each([
  [0, "0 B"],
  [1023, "1,023 B"],
  [1024, "1.00 KB"],
  [1536 * 1024, "1.50 MB"],
  [5 * 1024 ** 4, "5.00 TB"],
  [4096 * 1024 ** 5, "4,096.00 PB"],
])("size of %d is %s, as in the API", (bytes, text) => expect(size(bytes)).toBe(text));

test("rates, counts and percentages", () => {
  expect(rate(2048)).toBe("2.00 KB/s");
  expect(count(1234567)).toBe("1,234,567");
  expect([short(9999), short(12_345), short(4_500_000), short(1.25)]).toEqual(["9,999", "12.3 k", "4.5 M", "1.3"]);
  expect([percent(0), percent(0.126), percent(41.54)]).toEqual(["0.0 %", "0.13 %", "41.5 %"]);
  expect([milliseconds(0.8), milliseconds(124.4), milliseconds(2310)]).toEqual(["0.8 ms", "124 ms", "2.31 s"]);
});

test.each([
  [0, "0 s"],
  [59.9, "59 s"],
  [60, "1 min"],
  [3600, "1 h"],
  [7500, "2 h 5 min"],
  [86_400 * 4 + 3 * 3600, "4 d 3 h"],
])("%d seconds are %s", (seconds, text) => expect(duration(seconds)).toBe(text));

test("times", () => {
  expect(utc("2026-11-22T19:05:12Z")).toBe("2026-11-22 19:05:12 UTC");
  expect(relative("2026-11-22T19:02:00Z", Date.parse("2026-11-22T19:05:12Z"))).toBe("3 min. ago");
  expect(relative("2026-11-24T19:05:12Z", Date.parse("2026-11-22T19:05:12Z"))).toBe("in 2 days");
});
