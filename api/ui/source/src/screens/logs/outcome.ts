/** What became of a request: whose error it was, and how that looks. */
import type { Schemas } from "../../api/client";
import type { Kind } from "../../components/states";
import type { IconName } from "../../components/icons";
import { isReported } from "../../lib/reasons";

/** As the API has them: the proxy refused it, it or what is behind it failed, or the origin responded with an error. */
export const OUTCOMES = ["passed", "refused", "failed", "origin_error"] as const;
export type Outcome = (typeof OUTCOMES)[number];
/** Our refusals are red; errors of others are not. The icons say it without colours. */
export const LOOKS: Record<Outcome, { kind: Kind; icon: IconName | null }> = {
  passed: { kind: "good", icon: null },
  refused: { kind: "bad", icon: "cross" },
  failed: { kind: "warn", icon: "warning" },
  origin_error: { kind: "info", icon: "external" },
};

/** By what the service itself goes (`outcome_of`). */
export function outcomeOf({ reason, status_code, level }: Pick<Schemas["LogEntry"], "reason" | "status_code" | "level">): Outcome {
  const own = reason !== "" && !isReported(reason);
  if (status_code < 400) return own && level === "warning" ? "refused" : "passed";
  return own ? (status_code < 500 ? "refused" : "failed") : "origin_error";
}
