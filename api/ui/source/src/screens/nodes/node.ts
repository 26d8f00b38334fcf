/** What is wrong with a node, and what it alone has, in words. */
import type { Schemas } from "../../api/client";
import { duration, size } from "../../lib/format";
import type { Node } from "../../lib/fleet.svelte";
import { t } from "../../texts";

export type Token = Schemas["NodeTokenView"];

/** Seconds for which usage may wait for the database: a node reports each second. */
const REPORTED = 60;

/** A few words for each problem, as the command line has them; the node's own page has the rest. */
export function problemsOf({ state, database, failed, pending, settings_differ, last_seen_at }: Node): string[] {
  const reached = !["late", "down", "joining", "unknown"].includes(state);
  const found: [boolean, string][] = [
    [state === "late" || state === "down", t("nodes.problem.silent")],
    [state === "unknown" && last_seen_at !== null, t("nodes.problem.as_of")],
    [reached && database?.connected === false, t("nodes.problem.cut_off")],
    [reached && database?.doorbell === "polling", t("nodes.problem.polling")],
    [failed.length > 0, t("nodes.problem.failed", { n: failed.length })],
    [(pending.usage_seconds ?? 0) > REPORTED, t("nodes.problem.unreported", { size: size(pending.usage_bytes ?? 0) })],
    [Object.keys(settings_differ).length > 0, t("nodes.problem.differ")],
  ];
  return found.filter(([applies]) => applies).map(([, words]) => words);
}

/** `12.3 MB of usage, since 40 s, 2 sign-ins`; empty where nothing waits. */
export function pendingWords(pending: Record<string, number>): string {
  const { usage_bytes = 0, usage_seconds = 0 } = pending;
  const usage = usage_bytes ? [t("nodes.pending.usage", { size: size(usage_bytes), time: duration(usage_seconds) })] : [];
  const counted = (["sign_ins", "credentials", "audit"] as const).filter((name) => pending[name]).map((name) => t(`nodes.pending.${name}`, { n: pending[name]! }));
  return [...usage, ...counted].join(", ");
}

/** Addresses as the form has them: `name=host`, one a line. */
export const addressLines = (addresses: Record<string, string>): string => Object.entries(addresses).map(([name, host]) => `${name}=${host}`).join("\n");

/** What became of a token. */
export function tokenState({ used_by, expires_at }: Token, now: number = Date.now()): "used" | "expired" | "open" {
  if (used_by) return "used";
  return new Date(expires_at).getTime() <= now ? "expired" : "open";
}
