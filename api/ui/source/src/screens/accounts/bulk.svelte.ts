/** Enable, disable, tag and delete many accounts: each batch is one change, all of it or nothing. */
import { api, data, type Schemas } from "../../api/client";
import { Bulk, type Chosen } from "../../lib/bulk.svelte";
import { toasts } from "../../lib/toasts.svelte";
import { t } from "../../texts";

type Change = Partial<Pick<Schemas["FleetAccountChange"], "enabled" | "add_tags" | "remove_tags">>;
/** Accounts of one request. */
const BATCH = 1000;

export class AccountActions {
  readonly bulk = new Bulk();
  #after: () => Promise<void>;

  /** `after` is called when something has changed. */
  constructor(after: () => Promise<void>) {
    this.#after = after;
  }

  /** These return the ids that failed or were left out. */
  change(title: string, chosen: readonly Chosen[], change: Change): Promise<Set<string>> {
    return this.#run(title, chosen, (ids) => data(api.POST("/api/v1/accounts/batch", { body: { update: ids.map((id) => ({ id, ...change })) } as never })));
  }
  remove(chosen: readonly Chosen[]): Promise<Set<string>> {
    return this.#run(t("accounts.bulk.delete", { n: chosen.length }), chosen, (ids) => data(api.POST("/api/v1/accounts/batch", { body: { delete: ids } as never })));
  }

  async #run(title: string, chosen: readonly Chosen[], send: (ids: string[]) => Promise<unknown>): Promise<Set<string>> {
    const failed = await this.bulk.batches(title, chosen, BATCH, send);
    if (!failed.size) toasts.done(t("accounts.bulk.done", { n: chosen.length }));
    await this.#after();
    return failed;
  }
}
