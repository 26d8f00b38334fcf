/** Start, stop, restart and delete, of one proxy or of many; tags and other changes of many, each of which is one revision. */
import { api, data } from "../../api/client";
import { Bulk, type Chosen } from "../../lib/bulk.svelte";
import { session } from "../../lib/session.svelte";
import { toasts } from "../../lib/toasts.svelte";
import { t, type Key } from "../../texts";
import type { ProxySet } from "./change";

export type ProxyAction = "start" | "stop" | "restart";

const PATHS = {
  start: "/api/v1/proxies/{proxy_id}/start",
  stop: "/api/v1/proxies/{proxy_id}/stop",
  restart: "/api/v1/proxies/{proxy_id}/restart",
} as const;
const DONE: Record<ProxyAction, Key> = { start: "proxies.started", stop: "proxies.stopped", restart: "proxies.restarted" };
/** Proxies of one request. */
const BATCH = 10_000;

export class ProxyActions {
  busy = $state(false);
  readonly bulk = new Bulk();
  #after: () => Promise<void>;

  /** `after` is called when something has changed. */
  constructor(after: () => Promise<void>) {
    this.#after = after;
  }

  async one(action: ProxyAction, { id, name }: { id: string; name: string }): Promise<void> {
    this.busy = true;
    try {
      await run(action, id);
      toasts.done(t(DONE[action], { name }), action === "stop" ? { title: t("proxies.start.again"), run: () => void this.one("start", { id, name }) } : null);
    } catch (error) {
      toasts.failed(error, t(`proxies.${action}.failed`, { name }));
    } finally {
      this.busy = false;
    }
    await this.#after();
  }

  /** These return the ids that failed or were left out. */
  async many(action: ProxyAction, chosen: readonly Chosen[]): Promise<Set<string>> {
    const title = t(`proxies.bulk.${action}`, { n: chosen.length });
    if (action !== "restart") return this.change(title, chosen, { status: action === "start" ? "active" : "inactive" });
    return this.#done(chosen, await this.bulk.each(title, chosen, (id) => run(action, id)), null);
  }
  remove(chosen: readonly Chosen[]): Promise<Set<string>> {
    return this.#batches(t("proxies.bulk.delete", { n: chosen.length }), chosen, (ids) => ({ delete: ids }));
  }
  change(title: string, chosen: readonly Chosen[], set: ProxySet): Promise<Set<string>> {
    return this.#batches(title, chosen, (ids) => ({ update: ids.map((id) => ({ id, ...set })) }));
  }

  async #batches(title: string, chosen: readonly Chosen[], bodyOf: (ids: string[]) => object): Promise<Set<string>> {
    let made: number | null = null;
    const send = async (ids: string[]) => {
      const { revision } = await data(api.POST("/api/v1/proxies/batch", { body: bodyOf(ids) as never }));
      made = revision ?? made;
    };
    return this.#done(chosen, await this.bulk.batches(title, chosen, BATCH, send), made);
  }

  /** `made` is the revision that can be undone. */
  async #done(chosen: readonly Chosen[], failed: Set<string>, made: number | null): Promise<Set<string>> {
    const n = chosen.length - failed.size;
    const undo = made !== null && session.may("admin") ? { title: t("common.undo"), run: () => void this.#undo(made) } : null;
    if (n) toasts.done(t("proxies.bulk.done", { n }), undo);
    await this.#after();
    return failed;
  }

  async #undo(revision: number): Promise<void> {
    try {
      await data(api.POST("/api/v1/revisions/{revision_id}/undo", { params: { path: { revision_id: String(revision) } } }));
      toasts.done(t("history.undo.done", { n: revision }));
    } catch (error) {
      toasts.failed(error, t("history.restore.failed"));
    }
    await this.#after();
  }
}

function run(action: ProxyAction, id: string): Promise<unknown> {
  return data(api.POST(PATHS[action], { params: { path: { proxy_id: id } } }));
}
