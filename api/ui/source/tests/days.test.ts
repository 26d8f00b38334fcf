import { expect, test } from "vitest";
import { lastDays } from "../src/screens/accounts/days";

const now = Date.parse("2026-03-03T15:00:00Z");

test("days without usage have zeros, and the last one is today", () => {
  const used = { from: "2026-03-02T00:00:00Z", to: "2026-03-03T00:00:00Z", bytes_in: 1, bytes_out: 2, requests: 3, connection_seconds: 0, refusals: 0 };
  const days = lastDays([used], 3, now);
  expect(days.map((day) => day.requests)).toEqual([0, 3, 0]);
  expect(new Date(days[2]!.from).toISOString()).toBe("2026-03-03T00:00:00.000Z");
});
