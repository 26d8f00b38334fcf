/** What the overview computes from the response. */
import type { Schemas } from "../../api/client";
import type { Series as ChartSeries } from "../../components/chart";
import { milliseconds, percent, rate, short } from "../../lib/format";
import { t } from "../../texts";

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

/** What the chart shows. */
export const LINES = ["bytes", "requests", "errors", "time"] as const;

/** The lines of the chart, and how their values are written. Bytes to clients go up, those from clients down. */
export function linesOf(series: Series, line: (typeof LINES)[number]): { series: ChartSeries[]; format: (value: number) => string; mirrored?: boolean } {
  if (line === "requests") return { format: short, series: [{ title: t("common.requests"), values: series.requests_per_second }] };
  if (line === "errors") return { format: percent, series: [{ title: t("overview.errors"), values: series.error_rate, color: "--refused" }] };
  if (line === "time") return { format: milliseconds, series: [{ title: t("overview.p95"), values: series.response_time_p95 }] };
  return {
    format: rate,
    mirrored: true,
    series: [
      { title: t("common.to_clients"), values: series.bandwidth_out },
      { title: t("common.from_clients"), values: series.bandwidth_in },
    ],
  };
}

type Values = readonly (number | null)[];

export const moved = {
  /** The mean of the values that there are; 0 without any. */
  mean(values: Values): number {
    const known = values.filter((value) => value !== null);
    return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : 0;
  },
};
