/** Which colour and icon the words of the API have. A screen adds its own words here. */
export type Kind = "good" | "warn" | "bad" | "info" | "neutral";

const KINDS: Record<Kind, string[]> = {
  good: ["active", "running", "healthy", "up", "enabled", "success", "delivered", "applied"],
  warn: ["degraded", "warning", "draining", "late", "expiring", "retrying", "quota_reached"],
  bad: ["failed", "unhealthy", "down", "error", "critical", "denied", "timeout"],
  info: ["starting", "joining", "pending", "waiting", "info"],
  neutral: ["inactive", "stopped", "drained", "sleeping", "disabled", "unknown", "expired", "revoked", "debug"],
};

export function kindOf(state: string): Kind {
  return (Object.keys(KINDS) as Kind[]).find((kind) => KINDS[kind].includes(state)) ?? "neutral";
}
