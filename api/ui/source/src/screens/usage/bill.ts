/** Usage as a bill: of a month or of the last days, its days stacked by the groups that have used most, and lines with amounts. All of it in UTC. */
import type { Schemas } from "../../api/client";
import type { Bar, Part } from "../../components/Histogram.svelte";

type Figures = Schemas["UsageFigures"];
type Row = Schemas["UsageRow"];
export type Used = Figures & Pick<Row, "from"> & Partial<Row>;
export const GROUPS = ["account", "plan", "proxy", "tag", "node"] as const;
export type Group = (typeof GROUPS)[number];
export const RANGES = ["7d", "30d", "90d", "1y"] as const;
/** Groups that have a colour. */
export const STACKED = ["s1", "s2", "s3", "s4", "s5"] as const satisfies Part[];
const DAY = 86_400_000;
const GB = 1e9;

export interface Period {
  /** Unix milliseconds. */
  start: number;
  end: number;
  /** `2026-11`, or null for the last days. */
  month: string | null;
  step: "day" | "month";
}

/** `2026-11`: the month of `now`, or so many before. */
export function monthOf(now: number, before = 0): string {
  const date = new Date(now);
  return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - before)).toISOString().slice(0, 7);
}

/** Of a month or of a range; of this month for anything else. Today, and for a year this month, are the last ones. */
export function periodOf(text: string, now: number): Period {
  const today = Math.floor(now / DAY) * DAY;
  if (text === "1y") return { start: Date.parse(monthOf(now, 11)), end: following(Date.parse(monthOf(now))), month: null, step: "month" };
  if ((RANGES as readonly string[]).includes(text)) return { start: today - (parseInt(text) - 1) * DAY, end: today + DAY, month: null, step: "day" };
  const month = /^20\d\d-(0[1-9]|1[0-2])$/.test(text) ? text : monthOf(now);
  return { start: Date.parse(month), end: following(Date.parse(month)), month, step: "day" };
}

const following = (month: number) => Date.UTC(new Date(month).getUTCFullYear(), new Date(month).getUTCMonth() + 1);
const bytes = (row: Pick<Used, "bytes_in" | "bytes_out">) => row.bytes_in + row.bytes_out;
/** What a row is of; empty for those without, such as accounts without a plan. */
export const keyOf = (row: Used, by: Group): string => row[by] ?? "";

/** Bars of all days or months of the period, and the keys of the groups, those that have used most first. `rows`: with `top` of the API. */
export function stacked(rows: readonly Used[], by: Group, { start, end, step }: Period): { keys: string[]; bars: Bar[] } {
  const used = new Map<string, number>();
  const found = new Map<number, Bar["parts"]>();
  for (const row of rows) if (!row.others) used.set(keyOf(row, by), (used.get(keyOf(row, by)) ?? 0) + bytes(row));
  const keys = [...used.keys()].sort((a, b) => used.get(b)! - used.get(a)!);
  for (const row of rows) {
    const at = Date.parse(row.from);
    const kind: Part = row.others ? "others" : (STACKED[keys.indexOf(keyOf(row, by))] ?? "others");
    found.set(at, [...(found.get(at) ?? []), { kind, n: bytes(row) }]);
  }
  const order: readonly Part[] = [...STACKED, "others"];
  const bars: Bar[] = [];
  for (let from = start; from < end; ) {
    const to = step === "month" ? following(from) : from + DAY;
    bars.push({ from: local(from), to: local(to), parts: (found.get(from) ?? []).sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind)) });
    from = to;
  }
  return { keys, bars };
}

/** The time at which the browser's zone has the day and the hour that UTC has at `time`. */
const local = (time: number) => time + new Date(time).getTimezoneOffset() * 60_000;

export interface Line {
  kind: "one" | "others" | "total";
  key: string;
  row: Figures & Partial<Row>;
  bytes: number;
  /** Of all bytes, 0 to 1. */
  share: number;
  /** Rounded to cents; null without a price. */
  amount: number | null;
}

/**
 * A line of each group, one of all others, and the total. The total of amounts is that of the lines, so that it can be
 * checked by hand; by tag, where an account may be in several lines, that of all bytes.
 */
export function linesOf({ usage, total }: { usage: readonly Used[]; total: Figures }, by: Group, price: number | null, sort = ""): Line[] {
  const all = bytes(total);
  const line = (kind: Line["kind"], key: string, row: Line["row"]): Line => ({ kind, key, row, bytes: bytes(row), share: all ? bytes(row) / all : 0, amount: price === null ? null : cents((bytes(row) / GB) * price) });
  const ones = usage.filter((row) => !row.others).map((row) => line("one", keyOf(row, by), row));
  const others = usage.filter((row) => row.others).map((row) => line("others", "", row));
  const sum = line("total", "", total);
  if (price !== null && by !== "tag") sum.amount = cents([...ones, ...others].reduce((found, each) => found + each.amount!, 0));
  return [...(sort ? ones.sort(inOrder(sort)) : ones), ...others, sum];
}

const cents = (amount: number) => Math.round(amount * 100) / 100;

/** `-requests`, `username`, `bytes`: texts by letter, numbers by size; lines without come first. */
function inOrder(sort: string): (a: Line, b: Line) => number {
  const name = sort.replace(/^-/, "") as "bytes" | keyof Row;
  const value = (each: Line) => (name === "bytes" ? each.bytes : (each.row[name] ?? ""));
  const way = sort.startsWith("-") ? -1 : 1;
  return (a, b) => {
    const [one, other] = [value(a), value(b)];
    return way * (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true }));
  };
}
