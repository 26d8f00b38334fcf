/** A list of which the API returns pages by a cursor: the first page is kept current, others come as they are needed. */
import { untrack } from "svelte";
import { Poll } from "./poll.svelte";

export interface CursorPage<T> {
  rows: T[];
  next: string | null;
}

export class CursorList<T> {
  rows = $state.raw<T[]>([]);
  more = $state(false);
  readonly poll: Poll<true>;
  #next: string | null = null;
  #busy = false;
  #paged = false;
  #fetch: (cursor: string | undefined, signal: AbortSignal) => Promise<CursorPage<T>>;
  #id: (row: T) => string;
  #generation = 0;

  constructor(fetch: (cursor: string | undefined, signal: AbortSignal) => Promise<CursorPage<T>>, id: (row: T) => string, every: number) {
    this.#fetch = fetch;
    this.#id = id;
    this.poll = new Poll((signal) => this.#first(signal), () => every);
  }

  /** Begin anew, with other filters. */
  restart(): void {
    this.#generation += 1;
    this.#paged = false;
    void this.poll.restart();
  }

  /** The next page; nothing happens while one is under way or after the last one. */
  older = async (): Promise<void> => {
    if (this.#next === null || this.#busy) return;
    this.#busy = true;
    const generation = this.#generation;
    try {
      const page = await this.#fetch(this.#next, new AbortController().signal);
      if (generation !== this.#generation) return;
      const known = new Set(this.rows.map(this.#id));
      this.rows = [...this.rows, ...page.rows.filter((row) => !known.has(this.#id(row)))];
      this.#paged = true;
      this.#continue(page.next);
    } finally {
      this.#busy = false;
    }
  };

  async #first(signal: AbortSignal): Promise<true> {
    const page = await this.#fetch(undefined, signal);
    if (signal.aborted) return true;
    if (this.#paged) {
      const current = new Map(page.rows.map((row) => [this.#id(row), row]));
      this.rows = this.rows.map((row) => current.get(this.#id(row)) ?? row);
    } else {
      this.rows = page.rows;
      this.#continue(page.next);
    }
    return true;
  }

  #continue(next: string | null): void {
    this.#next = next;
    this.more = next !== null;
  }
}

/** `cursorList((cursor, signal) => …, (row) => row.id)` while a component is made; `reset` says what the filters are. */
export function cursorList<T>(
  fetch: (cursor: string | undefined, signal: AbortSignal) => Promise<CursorPage<T>>,
  id: (row: T) => string,
  options: { every?: number; reset?: () => unknown } = {},
): CursorList<T> {
  const made = new CursorList(fetch, id, options.every ?? 5000);
  /** Other values of the address, such as what is open beside the list, leave its pages as they are. */
  const wanted = $derived(JSON.stringify(options.reset?.() ?? null));
  $effect(() => {
    void wanted;
    untrack(() => made.restart()); // what is read to ask is no other reason
    return () => made.poll.stop();
  });
  $effect(() => made.poll.watch());
  return made;
}

/** The rows of all pages, such as for what is done with all that match. */
export async function everyPage<T>(fetch: (cursor: string | undefined) => Promise<CursorPage<T>>): Promise<T[]> {
  const found: T[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const page = await fetch(cursor);
    found.push(...page.rows);
    cursor = page.next;
  }
  return found;
}
