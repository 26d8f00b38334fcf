/** What an entry of "needs attention" says in the language of the page, where it is dealt with, and what mends it. */
import { api, data } from "../../api/client";
import { screenAt } from "../../areas";
import { cited } from "../../lib/cited";
import { moment } from "../../lib/format";
import { placed } from "../../lib/places";
import { url } from "../../lib/router.svelte";
import { session } from "../../lib/session.svelte";
import { t, type Key } from "../../texts";
import type { Overview } from "./overview";

export type Entry = Overview["attention"]["entries"][number];

const at = (area: string) => ({ id }: Entry) => (id ? `/${area}/${id}` : `/${area}`);
const PATHS: Partial<Record<Entry["kind"], (entry: Entry) => string>> = {
  proxy: at("proxies"),
  pool: at("pools"),
  list: at("lists"),
  account: at("accounts"),
  certificate: (entry) => (entry.id ? at("proxies")(entry) : "/settings"),
  webhook: at("webhooks"),
  user: at("users"),
};

/** The address of its screen, if there is one that the user may see. */
export function placeOf(entry: Entry): string | null {
  const path = PATHS[entry.kind]?.(entry) ?? null;
  const area = path === null ? undefined : screenAt(placed(path))?.area;
  return path !== null && area && session.may(area.permission, area.role) ? url(path, entry.reason === "quota_reached" && !entry.id ? { status: "quota_reached" } : {}) : null;
}

/** What is wrong, beside the word for its reason. */
export function wordsOf(entry: Entry): string {
  const detail = cited(entry.detail ?? entry.error);
  if (entry.reason === "quota_reached") return t("overview.says.quota", { n: entry.count, names: entry.parts.join(", ") + (entry.count > entry.parts.length ? ", …" : "") });
  if (entry.count > 1 && entry.parts.length) return t(entry.reason === "list_unreadable" ? "overview.says.lists" : "overview.says.parts", { n: entry.count, names: entry.parts.join(", ") + (entry.count > entry.parts.length ? ", …" : ""), detail });
  switch (entry.reason) {
    case "list_fetch_failed":
      return entry.fetched_at ? t("overview.says.list_old", { detail, time: moment(entry.fetched_at) }) : t("overview.says.list_empty", { detail });
    case "pool_fetch_failed":
      return entry.fetched_at ? t("overview.says.pool_old", { detail, time: moment(entry.fetched_at) }) : t("overview.says.pool_empty", { detail });
    case "certificate_ends":
      return entry.ends_at ? t(entry.severity === "error" ? "overview.says.ended" : "overview.says.ends", { time: moment(entry.ends_at) }) : detail;
    case "disk_full":
    case "memory_full":
      return t("overview.says.full", { percent: entry.percent ?? "" });
    case "deliveries_given_up":
      return t("overview.says.given_up", { event: entry.detail ?? "" });
    case "first_password":
      return t("overview.says.first_password");
    default:
      return detail;
  }
}

/** Does what mends an entry, where that is one request; the others are done on its screen. */
export const MENDING: Partial<Record<NonNullable<Entry["fix"]>, { permission: string; failed: Key; run: (id: string) => Promise<unknown> }>> = {
  restart: { permission: "proxy.write", failed: "proxies.restart.failed", run: (id) => data(api.POST("/api/v1/proxies/{proxy_id}/restart", { params: { path: { proxy_id: id } } })) },
  fetch: { permission: "proxy.write", failed: "lists.refresh.failed", run: (id) => (id.startsWith("pool_") ? data(api.POST("/api/v1/pools/{pool_id}/refresh", { params: { path: { pool_id: id } } })) : data(api.POST("/api/v1/lists/{list_id}/refresh", { params: { path: { list_id: id } } }))) },
  enable: { permission: "settings.write", failed: "objects.changed.failed", run: (id) => data(api.PATCH("/api/v1/webhooks/{webhook_id}", { params: { path: { webhook_id: id } }, body: { enabled: true } })) },
};
