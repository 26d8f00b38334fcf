/** The pictures of what was counted lately: bytes of a minute as a line, requests of an hour as cells. */
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

/** The cells of one kind as a path of `beats.length` by 1. */
export function cellsOf(beats: readonly Beat[], kind: Beat): string {
  return beats.map((each, index) => (each === kind ? `M${index} 1V${1 - HEIGHTS[kind]}h.75V1z` : "")).join("");
}

/** Values as the outline of an area of `values.length - 1` by 1, from the lower left. */
export function areaOf(values: readonly number[]): string {
  const most = Math.max(1, ...values);
  return `M0 1${values.map((value, index) => `L${index} ${Number((1 - value / most).toFixed(3))}`).join("")}V1z`;
}
