/**
 * Numbers, sizes, rates and times as people read them, and lists as they type them. Units are decimal, as in bills, and what
 * a person chose reads as it was typed: `20 GiB`, `20 Mbit/s`. The command line has the same rules (`api/cli/quantities.py`).
 */
import { locale, t } from "../texts";

/** A unit, and how many bytes it is. */
export interface Unit { name: string; bytes: number }

const powers = (names: readonly string[], base: number, first = 1): Unit[] => names.map((name, power) => ({ name, bytes: first * base ** power }));
const perSecond = (units: readonly Unit[]): Unit[] => units.map((unit) => ({ ...unit, name: `${unit.name}/s` }));
const DECIMAL = powers(["B", "kB", "MB", "GB", "TB", "PB"], 1000);
const BINARY = powers(["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const BITS = powers(["bit", "kbit", "Mbit", "Gbit"], 1000, 1 / 8);
const UNITS = { size: [DECIMAL, BINARY], rate: [DECIMAL, BITS, BINARY].map(perSecond) };
/** What fields offer. */
const OFFERED = { size: DECIMAL.slice(2, 5), rate: [UNITS.rate[0]![1]!, UNITS.rate[0]![2]!, UNITS.rate[1]![2]!] };
const USUAL = { size: OFFERED.size[1]!, rate: OFFERED.rate[2]! };
const formats = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>();

/** `1.01 MB`: three significant digits, and no zeros behind them. */
export const size = (bytes: number): string => inUnit(bytes, fitting(bytes, DECIMAL));

/** `1.5 MB/s` of bytes per second. */
export const rate = (bytes: number): string => `${size(bytes)}/s`;

/** A size, or a rate, that a person chose: `50 GB`, `20 GiB`, `20 Mbit/s`. */
export const asTyped = (kind: "size" | "rate", bytes: number): string => inUnit(bytes, typedIn(bytes, kind));

/** The units that a field offers, and the one that it has for `bytes`; null where it is empty. */
export function unitsOf(kind: "size" | "rate", bytes: number | null): { units: Unit[]; unit: Unit } {
  const typed = bytes ? typedIn(bytes, kind) : USUAL[kind];
  const offered = OFFERED[kind];
  return { units: offered.some(({ name }) => name === typed.name) ? offered : [...offered, typed], unit: typed };
}

/** The largest unit of which there is one at least. */
function fitting(bytes: number, units: readonly Unit[]): Unit {
  const next = units.slice(1).findIndex((unit, power) => Math.abs(rounded(bytes, units[power]!)) * units[power]!.bytes < unit.bytes);
  return units.at(next)!;
}

/** The unit in which so many bytes need the fewest digits: that in which people type. */
function typedIn(bytes: number, kind: "size" | "rate"): Unit {
  const digits = (unit: Unit) => (bytes / unit.bytes).toPrecision(15).replace(".", "").replace(/0+$/, "").length;
  return UNITS[kind].map((units) => fitting(bytes, units)).reduce((best, unit) => (digits(unit) < digits(best) ? unit : best));
}

const places = (bytes: number, unit: Unit): number => {
  const value = Math.abs(bytes) / unit.bytes;
  return unit.bytes <= 1 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
};
const rounded = (bytes: number, unit: Unit): number => Number((bytes / unit.bytes).toFixed(places(bytes, unit)));
const inUnit = (bytes: number, unit: Unit): string => `${decimals(bytes / unit.bytes, places(bytes, unit), 0)} ${unit.name}`;

/** Whole numbers with separators. */
export const count = (value: number): string => decimals(value, 0);

/** `12.3 k`, `4.5 M`: for figures that must stay short. */
export function short(value: number): string {
  if (Math.abs(value) < 10_000) return decimals(value, Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : 1);
  const [by, unit] = Math.abs(value) < 1e6 ? [1e3, "k"] : Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${decimals(value / by, 1)} ${unit}`;
}

export const percent = (value: number): string => `${decimals(value, value !== 0 && Math.abs(value) < 10 ? 2 : 1)} %`;

/** `0.8 ms`, `124 ms`, `2.31 s`. */
export function milliseconds(value: number): string {
  if (value >= 1000) return `${decimals(value / 1000, 2)} s`;
  return `${decimals(value, value < 10 ? 1 : 0)} ms`;
}

/** A length of time from seconds: `42 s`, `3 min`, `2 h 5 min`, `4 d 3 h`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  const hours = Math.floor(minutes / 60);
  if (whole < 60) return `${whole} s`;
  if (minutes < 60) return `${minutes} min`;
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(hours / 24)} d`;
}

/** In the zone of the browser: `22 Nov 2026, 19:05:12`. */
export function moment(time: string | number | Date): string {
  return dates("moment", { dateStyle: "medium", timeStyle: "medium" }).format(new Date(time));
}

/** `22 Nov 2026`. */
export const date = (time: string | number | Date): string => dates("date", { dateStyle: "medium" }).format(new Date(time));

/** The time of day: `19:05:12`. */
export const clock = (time: string | number | Date): string => dates("clock", { timeStyle: "medium" }).format(new Date(time));

/** `2026-11-22 19:05:12 UTC`. */
export function utc(time: string | number | Date): string {
  return `${new Date(time).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** `3 minutes ago`, `in 2 days`; in the language of the page. */
export function relative(time: string | number | Date, now: number = Date.now()): string {
  const seconds = (new Date(time).getTime() - now) / 1000;
  if (Math.abs(seconds) < 5) return t("common.just_now");
  const steps: [Intl.RelativeTimeFormatUnit, number][] = [["year", 31_536_000], ["month", 2_592_000], ["day", 86_400], ["hour", 3600], ["minute", 60]];
  const format = new Intl.RelativeTimeFormat(locale(), { numeric: "auto", style: "short" });
  for (const [unit, length] of steps) if (Math.abs(seconds) >= length) return format.format(Math.trunc(seconds / length), unit);
  return format.format(Math.trunc(seconds), "second");
}

/** `relative` of what has happened: never a future, whatever the clocks say. */
export const since = (time: string | number | Date, now: number = Date.now()): string => relative(Math.min(new Date(time).getTime(), now), now);

function decimals(value: number, most: number, least = most): string {
  const key = `${locale()} ${most} ${least}`;
  const made = formats.get(key) ?? new Intl.NumberFormat(locale(), { minimumFractionDigits: least, maximumFractionDigits: most });
  formats.set(key, made);
  return made.format(value as never);
}

function dates(name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${locale()} ${name}`;
  const made = (formats.get(key) as Intl.DateTimeFormat | undefined) ?? new Intl.DateTimeFormat(locale(), options);
  formats.set(key, made);
  return made;
}

/** The lines of a text that have something, without the blanks around them. */
export const linesOf = (text: string): string[] => text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
