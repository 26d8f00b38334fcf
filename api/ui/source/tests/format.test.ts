import { expect, test } from "vitest";
import { asTyped, count, duration, milliseconds, percent, rate, relative, short, since, size, unitsOf, utc } from "../src/lib/format";

test.each([
  [0, "0 B"],
  [999, "999 B"],
  [999.6, "1 kB"],
  [1024, "1.02 kB"],
  [1_009_900, "1.01 MB"],
  [99_960, "100 kB"],
  [999_949, "1 MB"],
  [50_000_000_000, "50 GB"],
  [10 * 2 ** 30, "10.7 GB"],
  [2e18, "2,000 PB"],
])("size of %d is %s", (bytes, text) => expect(size(bytes)).toBe(text));

test.each([
  ["size", 50_000_000_000, "50 GB", "GB"],
  ["size", 20 * 2 ** 30, "20 GiB", "GiB"],
  ["size", 1_234_500_000_000, "1.23 TB", "TB"],
  ["size", 500_000, "500 kB", "kB"],
  ["rate", 2_500_000, "20 Mbit/s", "Mbit/s"],
  ["rate", 5_000_000, "5 MB/s", "MB/s"],
  ["rate", 300_000, "300 kB/s", "kB/s"],
  ["rate", 2 ** 20, "1 MiB/s", "MiB/s"],
] as const)("a chosen %s of %d bytes reads %s and is edited in %s", (kind, bytes, text, name) => {
  expect(asTyped(kind, bytes)).toBe(text);
  const { units, unit } = unitsOf(kind, bytes);
  expect([unit.name, units.includes(unit), units.length]).toEqual([name, true, ["kB", "GiB", "MiB/s"].includes(name) ? 4 : 3]);
});

test("an empty field begins with the usual unit", () => {
  expect(unitsOf("size", null).unit.name).toBe("GB");
  expect(unitsOf("rate", 0).unit.name).toBe("Mbit/s");
});

test("rates, counts and percentages", () => {
  expect(rate(2048)).toBe("2.05 kB/s");
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
  expect([since("2026-11-22T19:05:20Z", Date.parse("2026-11-22T19:05:12Z")), since("2026-11-22T19:05:02Z", Date.parse("2026-11-22T19:05:12Z"))]).toEqual(["just now", "10 sec. ago"]);
});
