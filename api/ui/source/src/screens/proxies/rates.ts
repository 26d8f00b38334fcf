/** Rates of now, of the counters of a proxy at the latest times that they were read. */
export interface Sample {
  /** Milliseconds. */
  at: number;
  bytes_in: number;
  bytes_out: number;
  total_requests: number;
}
export interface Rates {
  in: number;
  out: number;
  requests: number;
}

/** Milliseconds over which rates are taken: processes report every second or so. */
const SPAN = 10_000;

/** The samples with another one; those that are too old, or of counters that have begun anew, go. */
export function withSample(samples: readonly Sample[], next: Sample): Sample[] {
  const kept = samples.filter((each) => next.at - each.at <= SPAN && each.at < next.at && each.total_requests <= next.total_requests && each.bytes_out <= next.bytes_out);
  return [...kept, next];
}

/** Per second; null until there are two samples. */
export function ratesOf(samples: readonly Sample[]): Rates | null {
  const [first, last] = [samples[0], samples.at(-1)];
  if (!first || !last || last.at <= first.at) return null;
  const seconds = (last.at - first.at) / 1000;
  return { in: (last.bytes_in - first.bytes_in) / seconds, out: (last.bytes_out - first.bytes_out) / seconds, requests: (last.total_requests - first.total_requests) / seconds };
}
