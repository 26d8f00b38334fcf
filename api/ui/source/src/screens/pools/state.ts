/** What is known of a pool and its upstreams now. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type UpstreamStatus = Schemas["PoolUpstreamStatus"];
type Summary = Schemas["PoolSummary"];
type Counted = Pick<Schemas["ListedPool"], "upstream_count" | "status">;

const usable = ({ up, unknown, cooling_down, banned }: Summary) => Math.max(0, up + unknown - cooling_down - banned);

/** In one word: all upstreams can be used, some, or none. */
export function stateOf({ upstream_count, status }: Counted): "up" | "degraded" | "down" | "unknown" {
  if (upstream_count === 0) return "down";
  if (status.unknown === upstream_count) return "unknown";
  const n = usable(status);
  return n === 0 ? "down" : n < upstream_count ? "degraded" : "up";
}

/** `3 of 4` */
export function wordOf({ upstream_count, status }: Counted): string {
  return t("pools.of", { n: usable(status), total: upstream_count });
}

/** The state of an upstream: a report comes before a cool-down, and that before what checks say. */
export function upstreamState(each: Pick<UpstreamStatus, "state" | "banned_until" | "cooldown_until">, now: number): "banned" | "cooling" | UpstreamStatus["state"] {
  const ahead = (time: string | null) => time !== null && Date.parse(time) > now;
  if (ahead(each.banned_until)) return "banned";
  return ahead(each.cooldown_until) ? "cooling" : each.state;
}
