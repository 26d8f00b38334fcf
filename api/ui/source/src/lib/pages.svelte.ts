/**
 * A long list of which only the visible pages are loaded: the total is known, rows come as they are scrolled to, and
 * only the visible ones are asked for again.
 */
import { untrack } from "svelte";
import { Poll } from "./poll.svelte";

export interface Slice<T> {
  rows: T[];
  total: number;
}

export class Pages<T> {
  /** Rows in all; 0 until the first response. */
  total = $state(0);
  #rows = $state.raw(new Map<number, T[]>());
  #first = $state(0);
  #last = $state(0);
  readonly size: number;
  readonly poll: Poll<number>;

  constructor(fetch: (page: number, size: number, signal: AbortSignal) => Promise<Slice<T>>, size: number, every: () => number) {
    this.size = size;
    this.poll = new Poll((signal) => this.#load(fetch, signal), every);
  }

  /** The row at an index; undefined while it is loaded. */
  at = (index: number): T | undefined => this.#rows.get(Math.floor(index / this.size))?.[index % this.size];

  /** Which rows are visible: their pages are loaded and kept current, and so are those that come next. */
  see = (from: number, to: number): void => {
    const first = Math.floor(Math.max(0, from - NEXT) / this.size);
    const last = Math.floor(Math.max(from, Math.min(to + NEXT, untrack(() => this.total) || to) - 1) / this.size);
    if (first !== untrack(() => this.#first)) this.#first = first;
    if (last !== untrack(() => this.#last)) this.#last = last;
  };

  /** Rows that are loaded, in order; for what is done with a selection. */
  get loaded(): T[] {
    return [...this.#rows.values()].flat();
  }

  forget(): void {
    this.#rows = new Map();
    this.#first = this.#last = 0;
  }

  async #load(fetch: (page: number, size: number, signal: AbortSignal) => Promise<Slice<T>>, signal: AbortSignal): Promise<number> {
    const wanted = Array.from({ length: this.#last - this.#first + 1 }, (_, index) => this.#first + index);
    const slices = await Promise.all(wanted.map((page) => fetch(page + 1, this.size, signal)));
    if (signal.aborted) return 0;
    const near = [...this.#rows].filter(([page]) => Math.abs(page - this.#first) < KEPT);
    this.#rows = new Map([...near, ...wanted.map((page, index): [number, T[]] => [page, slices[index]!.rows])]);
    return (this.total = slices[0]?.total ?? 0);
  }
}

/** Pages beside the visible ones that stay in memory. */
const KEPT = 10;
/** Rows before and after the visible ones that are loaded with them. */
const NEXT = 20;

/**
 * `const list = pages((page, size, signal) => …)` while a component is made; `<Table count={list.total} at={list.at}
 * onsee={list.see}>`. State that the function reads before its first `await` starts the list anew.
 */
export function pages<T>(
  fetch: (page: number, size: number, signal: AbortSignal) => Promise<Slice<T>>,
  options: { size?: number; every?: number | (() => number); reset?: () => unknown } = {},
): Pages<T> {
  const { every = 5000 } = options;
  const made = new Pages(fetch, options.size ?? 100, typeof every === "number" ? () => every : every);
  let before: string | null = null;
  $effect(() => {
    const key = JSON.stringify(options.reset?.() ?? null);
    if (before !== null && key !== before) untrack(() => made.forget());
    before = key;
    void made.poll.restart();
    return () => made.poll.stop();
  });
  $effect(() => made.poll.watch());
  return made;
}
