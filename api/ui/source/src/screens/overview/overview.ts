/** What the overview computes from the response. */
import type { Schemas } from "../../api/client";

export type Overview = Schemas["Overview"];
type Series = NonNullable<Overview["series"]>;

export const RANGES = ["5m", "1h", "1d"] as const;
/** The same range as the log names it. */
export const LOG_RANGE: Record<Overview["range"], string> = { "5m": "5m", "1h": "1h", "1d": "24h" };

/** Unix seconds of the values of a series. */
export function timesOf({ start, step, requests_per_second }: Pick<Series, "start" | "step" | "requests_per_second">): number[] {
  const first = Date.parse(start) / 1000;
  return requests_per_second.map((_, index) => first + index * step);
}

type Values = readonly (number | null)[];

export const moved = {
  /** The mean of the values that there are; 0 without any. */
  mean(values: Values): number {
    const known = values.filter((value) => value !== null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : 0;
  },
  /** What a rate per second amounts to over its series. */
  sum: (values: Values, step: number): number => values.reduce<number>((sum, value) => sum + (value ?? 0) * step, 0),
  /** Two rates together. */
  both: (one: Values, other: Values): (number | null)[] => one.map((value, index) => (value === null && other[index] == null ? null : (value ?? 0) + (other[index] ?? 0))),
};
