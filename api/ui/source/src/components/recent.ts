/**
 * The pictures of what was counted lately: bytes of a minute as a line, requests of an hour as cells. Their paths are in
 * pixels: a list has two in each row, and what is scaled costs each frame of a scroll.
 */
export type Beat = "none" | "good" | "warn" | "bad" | "unknown";

/** Percent of refusals and errors from which on a cell is red. */
const MUCH = 10;

/** What each cell says: no request, all went well, some failed, a tenth or more failed; or that it is not known. */
export function beatsOf(requests: readonly (number | null)[], failed: readonly (number | null)[]): Beat[] {
  return requests.map((n, index) => {
    const wrong = failed[index];
    if (n === null || wrong === null || wrong === undefined) return "unknown";
    const all = Math.max(n, wrong); // a client that is refused before its request is in `failed` alone
    return all === 0 ? "none" : wrong === 0 ? "good" : (100 * wrong) / all >= MUCH ? "bad" : "warn";
  });
}

/** The sum of what is known. */
export const sumOf = (values: readonly (number | null)[]): number => values.reduce<number>((sum, each) => sum + (each ?? 0), 0);

/** The height of a cell of 1: colour alone says nothing to some. */
const HEIGHTS: Record<Beat, number> = { none: 0.15, unknown: 0.15, good: 0.5, warn: 0.75, bad: 1 };

/** Pixels. */
export const HEIGHT = 18;
export const WIDTH = { cells: 96, area: 56 };

const pixels = (value: number): number => Number(value.toFixed(1));

/** The cells of each kind that there is, as a path. */
export function cellsOf(beats: readonly Beat[]): [Beat, string][] {
  const cell = WIDTH.cells / beats.length;
  const path = (kind: Beat) => beats.map((each, index) => (each === kind ? `M${pixels(index * cell)} ${HEIGHT}v${pixels(-HEIGHT * HEIGHTS[kind])}h${pixels(0.75 * cell)}V${HEIGHT}z` : "")).join("");
  return [...new Set(beats)].map((kind) => [kind, path(kind)]);
}

/** Values as the outline of an area, from the lower left. */
export function areaOf(values: readonly number[]): string {
  const [most, step] = [Math.max(1, ...values), WIDTH.area / Math.max(1, values.length - 1)];
  return `M0 ${HEIGHT}${values.map((value, index) => `L${pixels(index * step)} ${pixels(HEIGHT * (1 - value / most))}`).join("")}V${HEIGHT}z`;
}
