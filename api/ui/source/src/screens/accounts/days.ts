import type { Schemas } from "../../api/client";

const DAY = 86_400_000;

type Used = Pick<Schemas["OwnUsageDay"], "from" | "bytes_in" | "bytes_out" | "requests">;

export interface Day {
  from: number;
  to: number;
  bytes_in: number;
  bytes_out: number;
  requests: number;
}

/** The last `n` days (UTC), oldest first; those without usage, which the service leaves out, have zeros. */
export function lastDays(found: readonly Used[], n = 31, now = Date.now()): Day[] {
  const used = new Map(found.map((each) => [Date.parse(each.from), each]));
  const today = Math.floor(now / DAY) * DAY;
  return Array.from({ length: n }, (_, index) => {
    const from = today - (n - 1 - index) * DAY;
    const { bytes_in = 0, bytes_out = 0, requests = 0 } = used.get(from) ?? {};
    return { from, to: from + DAY, bytes_in, bytes_out, requests };
  });
}

/** A day as a bar of a histogram. */
export const partsOf = (day: Day) => [{ kind: "to" as const, n: day.bytes_out }, { kind: "from" as const, n: day.bytes_in }];
