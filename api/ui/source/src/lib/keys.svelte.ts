/**
 * Keys: single ones such as `/` and `?`, and pairs such as `g p`, which do not work while something is typed; and those with
 * Ctrl (or the command key), such as `Ctrl k`, which do.
 */

import { untrack } from "svelte";

interface Binding {
  /** `"/"`, `"Escape"`, a pair, `"g p"`, or one with Ctrl, `"Ctrl k"`. */
  keys: string;
  /** What it does, for the overlay; without it, it is not listed. */
  title?: string;
  /** Whether it works while a dialog is open, too. */
  always?: boolean;
  run: () => void;
}

/** Milliseconds between the two keys of a pair, at most. */
const PAIR = 1200;

class Keys {
  bindings = $state.raw<Binding[]>([]);
  #first: { key: string; at: number } | null = null;

  start(): void {
    addEventListener("keydown", (event) => this.#pressed(event));
  }

  /** Add bindings while a component is there; to be called in an `$effect`, whose cleanup it returns. */
  bind(added: Binding[]): () => void {
    untrack(() => (this.bindings = [...this.bindings, ...added]));
    return () => untrack(() => (this.bindings = this.bindings.filter((each) => !added.includes(each))));
  }

  /** Whether a key is the second one of a pair. */
  pairs(event: KeyboardEvent): boolean {
    const pair = this.#pair(event);
    return pair !== null && this.bindings.some((each) => each.keys === pair);
  }

  #pair(event: KeyboardEvent): string | null {
    return this.#first && event.timeStamp - this.#first.at < PAIR ? `${this.#first.key} ${event.key}` : null;
  }

  #pressed(event: KeyboardEvent): void {
    const ctrl = event.ctrlKey || event.metaKey;
    if (event.defaultPrevented || event.altKey || (!ctrl && isTyping(event))) return;
    const bindings = document.querySelector("dialog[open]") ? this.bindings.filter(({ always }) => always) : this.bindings;
    const pair = ctrl ? null : this.#pair(event);
    const key = ctrl ? `Ctrl ${event.key.toLowerCase()}` : event.key;
    const found = bindings.findLast((each) => each.keys === pair) ?? bindings.findLast((each) => each.keys === key);
    this.#first = found || ctrl ? null : { key, at: event.timeStamp };
    if (!found) return;
    event.preventDefault();
    if (!event.repeat) found.run();
  }
}

export const keys = new Keys();

function isTyping(event: KeyboardEvent): boolean {
  const at = event.target;
  if (!(at instanceof HTMLElement) || event.key === "Escape") return false;
  return at.isContentEditable || at.matches("input:not([type=checkbox], [type=radio]), textarea, select");
}
