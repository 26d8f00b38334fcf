/** Metrics of the API as the columns of a chart. */

type Series = Record<string, readonly { timestamp: string; value: number }[]>;

export interface Aligned {
  /** Unix seconds. */
  times: number[];
  /** For each metric one value per time; null where it has none. */
  series: Record<string, (number | null)[]>;
}

/** All times of all metrics in order, and their values at these. */
export function aligned(metrics: Series): Aligned {
  const stamps = [...new Set(Object.values(metrics).flatMap((points) => points.map((point) => point.timestamp)))].sort();
  const index = new Map(stamps.map((stamp, at) => [stamp, at]));
  const series = Object.entries(metrics).map(([name, points]) => {
    const values = new Array<number | null>(stamps.length).fill(null);
    for (const point of points) values[index.get(point.timestamp)!] = point.value;
    return [name, values] as const;
  });
  return { times: stamps.map((stamp) => Date.parse(stamp) / 1000), series: Object.fromEntries(series) };
}
