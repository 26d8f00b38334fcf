/** Marks on the chart: what was changed and restarted while it was measured. */
import { api, data } from "../../api/client";
import type { Mark } from "../../components/chart";
import { moment } from "../../lib/format";
import { changedWords } from "../../lib/revision";
import { url } from "../../lib/router.svelte";
import { t } from "../../texts";
import type { Overview } from "./overview";

export type { Mark };

/** Seconds of a range. */
const SECONDS: Record<Overview["range"], number> = { "5m": 300, "1h": 3600, "1d": 86_400 };
/** Changes that are asked for: the newest. */
const MOST = 100;

const said = (timestamp: string, ...words: (string | null)[]) => [moment(timestamp), ...words].filter(Boolean).join(" · ");
const at = (timestamp: string) => Date.parse(timestamp) / 1000;

/** The changes and the restarts of proxies in a range that ends now. */
export async function marks(range: Overview["range"], signal: AbortSignal, now: number = Date.now()): Promise<Mark[]> {
  const minute = Math.floor((now / 1000 - SECONDS[range]) / 60) * 60_000; // so that what is asked again has the same address, and can be what it was
  const start_time = new Date(minute).toISOString();
  const [found, restarts] = await Promise.all([
    data(api.GET("/api/v1/revisions", { params: { query: { start_time, limit: MOST } }, signal })),
    data(api.GET("/api/v1/audit", { params: { query: { start_time, action: "proxy.restarted", limit: MOST } }, signal })),
  ]);
  return [
    ...found.revisions.map((each): Mark => ({ at: at(each.timestamp), icon: "edit", title: said(each.timestamp, changedWords(each), each.actor.username), href: url("/changes", { open: each.revision }) })),
    ...restarts.audit.map((each): Mark => ({ at: at(each.timestamp), icon: "restart", title: said(each.timestamp, t("overview.mark.restarted", { name: each.resource?.name ?? "" }), each.actor.username), href: each.resource?.id ? url(`/proxies/${each.resource.id}`) : url("/changes") })),
  ];
}

/** The start of the service, if it was in the range. */
export function startedMark(started: string, range: Overview["range"], now: number = Date.now()): Mark[] {
  return at(started) < now / 1000 - SECONDS[range] ? [] : [{ at: at(started), icon: "play", title: said(started, t("overview.mark.started")), href: null }];
}
