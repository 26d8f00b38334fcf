/** Where the value of a key comes from, and what a change of it needs, in words. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type SettingSource = Schemas["SettingSource"];
type From = Pick<SettingSource, "source" | "place">;

export const CHANGES = ["at_once", "reload", "restart"] as const;
export const SOURCES = ["api", "file", "environment", "credential", "command_line", "default"] as const;

/** `from /etc/proxyfleet.toml:12`; the place alone says it for a file and a variable. */
export function fromWords({ source, place }: From): string {
  return place === null ? t(`settings.from.${source}`) : t(`settings.from.${source}.at`, { place });
}

/** A value as a person reads it: `–` for none. */
export function valueWords(value: unknown): string {
  if (value === null || value === "") return "–";
  if (typeof value === "boolean") return t(value ? "common.yes" : "common.no");
  if (Array.isArray(value)) return value.length ? value.map(valueWords).join(", ") : "–";
  if (typeof value === "object") {
    const entries = Object.entries(value as object);
    return entries.length ? entries.map(([name, each]) => `${name} = ${valueWords(each)}`).join(", ") : "–";
  }
  return String(value);
}

/** The keys that the filters leave. */
export function matching(rows: readonly SettingSource[], q: string, source: string, change: string): SettingSource[] {
  const word = q.trim().toLowerCase();
  return rows.filter((row) => (!source || row.source === source) && (!change || row.change === change) && (!word || `${row.key} ${valueWords(row.value)} ${row.place ?? ""}`.toLowerCase().includes(word)));
}
