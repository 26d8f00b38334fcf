import { expect, test } from "vitest";
import { bounds, interval, RANGES } from "../src/lib/range";

test("the last hour ends now", () => {
  const { start, end } = bounds({ range: "1h", from: "", to: "" }, 3_600_000);
  expect([start.getTime(), end.getTime()]).toEqual([0, 3_600_000]);
});

test("no range has more than a thousand points", () => {
  const seconds = { "1m": 60, "5m": 300, "1h": 3600, "1d": 86_400 };
  for (const length of Object.values(RANGES)) expect(length / seconds[interval(length)]).toBeLessThanOrEqual(1000);
});
