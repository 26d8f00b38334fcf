/** The rules that an account may have of its own, or of its plan. null inherits; 0 and empty lists say "none". */
import type { Schemas } from "../../api/client";
import { asTyped, count, duration } from "../../lib/format";
import { locale, t } from "../../texts";

export type Plan = Schemas["PlanView"];
export type Listed = Schemas["FleetAccountView"];
export const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;
export type Day = (typeof DAYS)[number];
export const PERIODS = ["day", "week", "month", "total"] as const;
export const LIMITS = ["bandwidth_in", "bandwidth_out", "connections", "requests_per_minute", "clients", "clients_window"] as const;
/** Seconds, where neither account nor plan says it. */
export const CLIENTS_WINDOW = 600;
export type Limit = (typeof LIMITS)[number];

export interface RulesValue {
  limits: Record<Limit, number | null>;
  quota: { bytes: number; period: (typeof PERIODS)[number] } | null;
  allow_destinations: string[] | null;
  deny_destinations: string[] | null;
  schedule: { timezone: string; windows: { days: Day[]; from: string; to: string }[] } | null;
}

export const blankRules = (): RulesValue => ({
  limits: { bandwidth_in: null, bandwidth_out: null, connections: null, requests_per_minute: null, clients: null, clients_window: null },
  quota: null, allow_destinations: null, deny_destinations: null, schedule: null,
});

/** The rules of a stored account or plan. */
export function rulesOf({ limits, quota, allow_destinations, deny_destinations, schedule }: RulesValue): RulesValue {
  return structuredClone({ limits, quota, allow_destinations, deny_destinations, schedule });
}

/** A limit with its unit. */
export function limitText(key: Limit, value: number): string {
  return key.startsWith("bandwidth") ? asTyped("rate", value) : key === "clients_window" ? duration(value) : count(value);
}

/** The limits to tell of: the window of clients only beside their number. */
export function limitsIn(limits: Partial<Record<Limit, number | null>>): Limit[] {
  return LIMITS.filter((key) => limits[key] && (key !== "clients_window" || limits.clients));
}

/** `Mon Tue 08:00–18:00 (Europe/Berlin)`. */
export function scheduleOf({ windows, timezone }: NonNullable<RulesValue["schedule"]>): string {
  if (!windows.length) return t("accounts.schedule.never");
  return `${windows.map((each) => `${each.days.map((day) => dayName(day)).join(" ")} ${each.from}–${each.to}`).join("; ")} (${timezone})`;
}

/** The name of a day in the language of the page. */
export function dayName(day: Day, form: "short" | "long" = "short"): string {
  return new Intl.DateTimeFormat(locale(), { weekday: form, timeZone: "UTC" }).format(Date.UTC(2024, 0, 1 + DAYS.indexOf(day)));
}

/** How much of each hour of a day is within the windows, 0 or 1, by day: for the view of the week. */
export function hours(schedule: NonNullable<RulesValue["schedule"]>): Record<Day, boolean[]> {
  const week = Object.fromEntries(DAYS.map((day) => [day, Array<boolean>(24).fill(false)])) as Record<Day, boolean[]>;
  for (const { days, from, to } of schedule.windows) {
    const [start, end] = [minutes(from), minutes(to)];
    for (const day of days) {
      mark(week[day], start, end > start ? end : 1440);
      if (end <= start) mark(week[DAYS[(DAYS.indexOf(day) + 1) % 7]!], 0, end);
    }
  }
  return week;
}

function mark(day: boolean[], from: number, to: number): void {
  for (let hour = Math.floor(from / 60); hour * 60 < to && hour < 24; hour += 1) day[hour] = true;
}

function minutes(time: string): number {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return hour * 60 + minute;
}
