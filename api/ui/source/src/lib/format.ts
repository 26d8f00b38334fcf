/** Numbers, sizes and times as people read them; sizes as in the API (1024-based, two decimals). */
import { locale, t } from "../texts";

const UNITS = ["B", "KB", "MB", "GB", "TB", "PB"];
const formats = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>();

/** `1.50 GB`; bytes have no decimals. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${decimals(value, unit === 0 ? 0 : 2)} ${UNITS[unit]}`;
}

/** `1.50 MB/s` of bytes per second. */
export const rate = (bytes: number): string => `${size(bytes)}/s`;

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

function decimals(value: number, places: number): string {
  const key = `${locale()} ${places}`;
  const made = formats.get(key) ?? new Intl.NumberFormat(locale(), { minimumFractionDigits: places, maximumFractionDigits: places });
  formats.set(key, made);
  return made.format(value as never);
}

function dates(name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${locale()} ${name}`;
  const made = (formats.get(key) as Intl.DateTimeFormat | undefined) ?? new Intl.DateTimeFormat(locale(), options);
  formats.set(key, made);
  return made;
}
