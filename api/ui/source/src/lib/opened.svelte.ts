/** The object whose drawer is open beside a list: `?open=ID` in the address, with an entry of the history of its own. */
import { router } from "./router.svelte";

export class Opened {
  #own = false;

  /** Its id; empty while none is open. */
  get id(): string {
    return router.query.get("open") ?? "";
  }

  open = (id: string): void => {
    const query = new URLSearchParams(router.query);
    query.set("open", id);
    router.search(query, { push: true });
    this.#own = true;
  };

  /** Where it was opened here, that is the way back; an address that came from elsewhere is changed. */
  close = (): void => {
    if (this.#own) return history.back();
    const query = new URLSearchParams(router.query);
    query.delete("open");
    router.search(query);
  };
}
