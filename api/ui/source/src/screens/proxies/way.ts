/** How many requests are refused at each step of their way through a proxy. */
import { STEPS, stepOf, type Step } from "../../lib/reasons";

export interface Refused {
  reason: string;
  n: number;
}

/** What is refused at each step, most often first. Other words, such as those of report mode, refuse nothing. */
export function refusedAt(counts: Iterable<readonly [string, number]>, direct: boolean): Record<Step, Refused[]> {
  const found = Object.fromEntries(STEPS.map((step) => [step, [] as Refused[]])) as Record<Step, Refused[]>;
  for (const [reason, n] of counts) {
    const step = stepOf({ reason }, !direct);
    if (step && n > 0) found[step].push({ reason, n });
  }
  for (const each of Object.values(found)) each.sort((one, other) => other.n - one.n);
  return found;
}

export const sumOf = (refused: readonly Refused[]): number => refused.reduce((sum, { n }) => sum + n, 0);
