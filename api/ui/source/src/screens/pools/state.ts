/** What is known of a pool and its upstreams now. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type UpstreamStatus = Schemas["PoolUpstreamStatus"];
type Counted = Pick<Schemas["ListedPool"], "upstream_count" | "status">;

/** `3 of 4`, and whether the rest is known and checked at all. */
export function wordOf({ upstream_count, status }: Counted): string {
  const words = [t("pools.of", { n: status.usable, total: upstream_count })];
  if (status.unknown) words.push(t("pools.unknown", { n: status.unknown }));
  if (status.used === false) words.push(t("pools.unused"));
  return words.join(", ");
}

/** The state of an upstream: a report comes before what checks say, and a cool-down behind that it is down. */
export function upstreamState(each: Pick<UpstreamStatus, "state" | "banned_until" | "cooldown_until">, now: number): "banned" | "cooling" | UpstreamStatus["state"] {
  const ahead = (time: string | null) => time !== null && Date.parse(time) > now;
  if (ahead(each.banned_until)) return "banned";
  return each.state !== "down" && ahead(each.cooldown_until) ? "cooling" : each.state;
}
