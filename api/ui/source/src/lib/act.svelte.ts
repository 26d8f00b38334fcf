/** One change that is under way: for the state of its button and the message about its end. */
import { toasts } from "./toasts.svelte";

export class Act {
  busy = $state(false);
  #after: () => unknown;

  /** `after` follows each, whether it worked or not: such as to read again what was changed. */
  constructor(after: () => unknown = () => undefined) {
    this.#after = after;
  }

  /** Run it unless it runs already. Says `done` at the end, or why it failed with `failed` before it; returns success. */
  async run(task: () => Promise<unknown>, said: { done?: string; failed: string }): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    try {
      await task();
      if (said.done) toasts.done(said.done);
      return true;
    } catch (error) {
      toasts.failed(error, said.failed);
      return false;
    } finally {
      this.busy = false;
      await this.#after();
    }
  }
}
