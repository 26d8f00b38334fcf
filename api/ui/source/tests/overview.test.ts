import { expect, test } from "vitest";
import { moved, timesOf } from "../src/screens/overview/overview";

test("the values of a series are a step apart", () => {
  expect(timesOf({ start: "1970-01-01T00:01:00Z", step: 10, requests_per_second: [1, null, 3] })).toEqual([60, 70, 80]);
});

test("what is missing counts neither in a mean nor in a sum", () => {
  expect(moved.mean([1, null, 3])).toBe(2);
  expect(moved.mean([null])).toBe(0);
  expect(moved.sum([1, null, 3], 10)).toBe(40);
  expect(moved.both([1, null, null], [2, 5, null])).toEqual([3, 5, null]);
});
