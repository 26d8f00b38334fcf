/** The records of a search: pages of older ones as they are scrolled to, and new ones while they are followed. */
import { untrack } from "svelte";
import { api, ApiError, data } from "../../api/client";
import { isAbort } from "../../api/errors";
import type { TimeSpan } from "../../lib/range";
import { times, type Entry, type which } from "./query";

type Query = ReturnType<typeof which>;

const PAGE = 100;
/** Rows that stay in memory while records are followed. */
const FOLLOWED = 2000;
/** Seconds that a request waits for new records: one that is aborted holds its place in the service as long, and a user has few. */
const WAIT = 2;
/** Seconds before the first of them, in which filters may change again; and the pause after one that failed. */
const CALM = 1;
const PAUSE = 5;

export class Records {
  rows = $state.raw<Entry[]>([]);
  /** New ones that wait, since the reader has scrolled away from the top. */
  waiting = $state.raw<Entry[]>([]);
  total = $state<number | null>(null);
  least = $state(false);
  loading = $state(true);
  error = $state.raw<ApiError | null>(null);
  trimmed = $state(false);
  #next = $state<string | null>(null);
  #tail: string | null = null;
  #query: Query | null = null;
  #controller = new AbortController();
  #busy = false;

  /** Whether there are older ones. */
  get more(): boolean {
    return this.#next !== null;
  }

  /** Search anew. What is shown stays until the first page is there. */
  async search(query: Query, span: TimeSpan): Promise<void> {
    this.stop();
    const controller = (this.#controller = new AbortController());
    this.#query = query;
    this.loading = true;
    await this.#guarded(controller, async () => {
      const found = await this.#page({ ...query, ...times(span), limit: PAGE }, controller.signal);
      this.rows = found.logs;
      this.waiting = [];
      this.total = found.total;
      this.least = found.total_is_lower_bound;
      this.trimmed = false;
      this.#tail = found.tail_cursor;
    });
  }

  /** The next page of older ones. */
  async older(): Promise<void> {
    const cursor = this.#next;
    const query = this.#query;
    if (cursor === null || this.#busy || !query) return;
    this.#busy = true;
    const controller = this.#controller;
    await this.#guarded(controller, async () => {
      const found = await this.#page({ ...query, limit: PAGE, cursor }, controller.signal);
      this.rows = [...this.rows, ...found.logs];
    });
    this.#busy = false;
  }

  /** Wait for new records until `stop`; `held` says whether they shall wait. */
  async follow(held: () => boolean): Promise<void> {
    const controller = this.#controller;
    await pause(CALM);
    while (!controller.signal.aborted && this.#tail !== null && this.#query) {
      const query = { ...this.#query, cursor: this.#tail, timeout: WAIT, limit: 1000 };
      try {
        const found = await data(api.GET("/api/v1/logs/tail", { params: { query }, signal: controller.signal }));
        this.#tail = found.next_cursor;
        this.#arrived([...found.logs].reverse(), untrack(held));
        this.error = null;
      } catch (error) {
        if (controller.signal.aborted || isAbort(error)) return;
        if (!(error instanceof ApiError)) throw error;
        if (error.status !== 429) this.error = error;
        await pause(Math.max(error.retryAfter ?? 0, PAUSE));
      }
    }
  }

  /** Put those that wait to the others. */
  show(): void {
    this.rows = this.#bounded([...this.waiting, ...this.rows]);
    this.waiting = [];
  }

  stop(): void {
    this.#controller.abort();
  }

  #arrived(entries: Entry[], held: boolean): void {
    if (!entries.length) return;
    if (this.total !== null) this.total += entries.length;
    this.waiting = [...entries, ...this.waiting].slice(0, FOLLOWED);
    if (!held) this.show();
  }

  #bounded(rows: Entry[]): Entry[] {
    if (rows.length <= FOLLOWED) return rows;
    this.trimmed = true;
    this.#next = null;
    return rows.slice(0, FOLLOWED);
  }

  async #page(query: Query & { limit: number; cursor?: string }, signal: AbortSignal) {
    const found = await data(api.GET("/api/v1/logs", { params: { query }, signal }));
    this.#next = found.next_cursor;
    return found;
  }

  async #guarded(controller: AbortController, task: () => Promise<void>): Promise<void> {
    try {
      await task();
      this.error = null;
    } catch (error) {
      if (controller.signal.aborted || isAbort(error)) return;
      if (!(error instanceof ApiError)) throw error;
      this.error = error;
    }
    this.loading = false;
  }
}

const pause = (seconds: number) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
