/** Start, stop and restart, of one proxy or of many. */
import { api, ApiError, data } from "../../api/client";
import { toasts } from "../../lib/toasts.svelte";
import { t, type Key } from "../../texts";

export type ProxyAction = "start" | "stop" | "restart";

const PATHS = {
  start: "/api/v1/proxies/{proxy_id}/start",
  stop: "/api/v1/proxies/{proxy_id}/stop",
  restart: "/api/v1/proxies/{proxy_id}/restart",
} as const;
const DONE: Record<ProxyAction, Key> = { start: "proxies.started", stop: "proxies.stopped", restart: "proxies.restarted" };
/** Requests at the same time. */
const AT_ONCE = 4;

export class ProxyActions {
  busy = $state(false);
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

  /** Returns the ids that failed; the first error is shown. */
  async many(action: ProxyAction, ids: string[]): Promise<string[]> {
    this.busy = true;
    const failed: string[] = [];
    let first: ApiError | null = null;
    const left = [...ids];
    const worker = async () => {
      for (let id = left.pop(); id !== undefined; id = left.pop()) {
        try {
          await run(action, id);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
          first ??= error;
          failed.push(id);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker)).finally(() => (this.busy = false));
    if (first) toasts.failed(first, t("proxies.bulk.failed", { n: failed.length, total: ids.length }));
    else toasts.done(t("proxies.bulk.done", { n: ids.length }));
    await this.#after();
    return failed;
  }
}

function run(action: ProxyAction, id: string): Promise<unknown> {
  return data(api.POST(PATHS[action], { params: { path: { proxy_id: id } } }));
}
