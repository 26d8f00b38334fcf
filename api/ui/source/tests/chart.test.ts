import { expect, test } from "vitest";
import { amounts, colorOf, NOTHING, placesOf, STEPS, type Mark } from "../src/components/chart";
import { brief } from "../src/lib/brief";
import { short } from "../src/lib/format";

test.each([
  ["512.00 ms", "512 ms"],
  ["1.50 %", "1.5 %"],
  ["1.05 s", "1.05 s"],
  ["1,000 B/s", "1,000 B/s"],
  ["10", "10"],
  ["1,024.00 MB", "1,024 MB"],
  ["0.0 ms", "0 ms"],
])("the axis writes %s as %s", (text, short) => expect(brief(text)).toBe(short));

test("each label of the axis is its amount, and none is there where there is nothing", () => {
  expect(amounts([0, 0.2, 0.4], short, 0.5)).toEqual(["0", "0.2", "0.4"]);
  expect(amounts([0, NOTHING / 2], short, NOTHING)).toEqual(["0", ""]);
  expect(STEPS.filter((step) => step >= 0.1 && step < 10)).toEqual([0.1, 0.2, 0.5, 1, 2, 5]);
});

test("a line has its own colour, that of its place, or the one that belongs to the line above zero", () => {
  const [one, own] = [{ title: "one", values: [] }, { title: "own", values: [], color: "--refused" }];
  expect([colorOf(one, 0, true), colorOf(one, 1, true), colorOf(one, 1, false), colorOf(own, 1, true)]).toEqual(["--series-1", "--data-pair", "--series-2", "--refused"]);
});

test("marks that would cover each other are one, with the latest first", () => {
  const mark = (at: number): Mark => ({ at, icon: "edit", title: String(at), href: null });
  const places = placesOf([50, 49, 10, 99, 101, 0].map(mark), [0, 100], 500, false);
  expect(places.map(({ x, marks }) => [x, marks.map(({ at }) => at)])).toEqual([[0, [0]], [50, [10]], [245, [50, 49]], [495, [99]]]);
  expect(placesOf([mark(101), mark(102)], [0, 100], 500, true)).toEqual([{ x: 500, marks: [mark(102), mark(101)] }]);
  expect(placesOf([mark(1)], [1, 1], 500, false)).toEqual([{ x: 0, marks: [mark(1)] }]);
});
