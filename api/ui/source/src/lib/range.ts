/** Time ranges: the last minutes to a year, or two times. In the address: `range=1h`, or `from=` and `to=`. */

/** Names and seconds. */
export const RANGES = { "5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000, "90d": 7_776_000, "1y": 31_536_000 } as const;
export type RangeName = keyof typeof RANGES;

export interface TimeSpan {
  range: RangeName | "";
  /** ISO 8601, where `range` is empty. */
  from: string;
  to: string;
}

/** Start and end as times of now. */
export function bounds(span: TimeSpan, now: number = Date.now()): { start: Date; end: Date } {
  if (span.range) return { start: new Date(now - RANGES[span.range] * 1000), end: new Date(now) };
  return { start: new Date(span.from), end: new Date(span.to || now) };
}

/** The interval that the metrics of a range have: at most some 500 points. */
export function interval(seconds: number): "1m" | "5m" | "1h" | "1d" {
  if (seconds <= 21_600) return "1m";
  if (seconds <= 172_800) return "5m";
  return seconds <= 2_592_000 ? "1h" : "1d";
}

/** As an input of the kind `datetime-local` has it: the browser's zone, to the minute; empty for no time. */
export function typedTime(time: string | Date): string {
  if (!time) return "";
  const at = new Date(time);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

export function isRange(name: string | null): name is RangeName {
  return name !== null && name in RANGES;
}
