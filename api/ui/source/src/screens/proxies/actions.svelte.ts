/** Start, stop, restart and delete, of one proxy or of many; tags of many. */
import { api, data } from "../../api/client";
import { Bulk, type Chosen } from "../../lib/bulk.svelte";
import { toasts } from "../../lib/toasts.svelte";
import { t, type Key } from "../../texts";

export type ProxyAction = "start" | "stop" | "restart";

const PATHS = {
  start: "/api/v1/proxies/{proxy_id}/start",
  stop: "/api/v1/proxies/{proxy_id}/stop",
  restart: "/api/v1/proxies/{proxy_id}/restart",
} as const;
const DONE: Record<ProxyAction, Key> = { start: "proxies.started", stop: "proxies.stopped", restart: "proxies.restarted" };
/** Proxies that one request tags. */
const TAGGED = 1000;

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
      toasts.done(t(DONE[action], { name }));
    } catch (error) {
      toasts.failed(error, t(`proxies.${action}.failed`, { name }));
    } finally {
      this.busy = false;
    }
    await this.#after();
  }

  /** These return the ids that failed or were left out. */
  many(action: ProxyAction, chosen: readonly Chosen[]): Promise<Set<string>> {
    return this.#done(chosen, this.bulk.each(t(`proxies.bulk.${action}`, { n: chosen.length }), chosen, (id) => run(action, id)));
  }
  remove(chosen: readonly Chosen[]): Promise<Set<string>> {
    const one = (id: string) => data(api.DELETE("/api/v1/proxies/{proxy_id}", { params: { path: { proxy_id: id } } }));
    return this.#done(chosen, this.bulk.each(t("proxies.bulk.delete", { n: chosen.length }), chosen, one));
  }
  tag(chosen: readonly Chosen[], add: string[], remove: string[]): Promise<Set<string>> {
    const send = (ids: string[]) => data(api.POST("/api/v1/proxies/tags", { body: { ids, add_tags: add, remove_tags: remove } }));
    return this.#done(chosen, this.bulk.batches(t("proxies.bulk.tag", { n: chosen.length }), chosen, TAGGED, send));
  }

  async #done(chosen: readonly Chosen[], work: Promise<Set<string>>): Promise<Set<string>> {
    const failed = await work;
    if (!failed.size) toasts.done(t("proxies.bulk.done", { n: chosen.length }));
    await this.#after();
    return failed;
  }
}

function run(action: ProxyAction, id: string): Promise<unknown> {
  return data(api.POST(PATHS[action], { params: { path: { proxy_id: id } } }));
}
