/** Several lists that go back in time as one. */
import type { CursorPage } from "../../lib/cursor.svelte";

export type Source<T> = (cursor: string | undefined, signal: AbortSignal) => Promise<CursorPage<T>>;

interface State<T> {
  /** Rows that older ones of another source may come before. */
  rows: T[];
  next: (string | null | undefined)[];
  /** Until when each source is read, in milliseconds; all of it is -Infinity. */
  until: number[];
}

/** Milliseconds that rows of one thing may be apart: they are in one page, if that has others. */
const TOGETHER = 5000;

/** Pages of all sources, newest first. `timeOf` returns milliseconds. */
export function merged<T>(sources: readonly Source<T>[], timeOf: (row: T) => number): Source<T> {
  const states = new Map<string, State<T>>();
  return async (cursor, signal) => {
    const { rows, next, until } = (cursor === undefined ? null : states.get(cursor)) ?? { rows: [], next: sources.map(() => undefined), until: sources.map(() => Infinity) };
    const newest = Math.max(...until);
    const pages = await Promise.all(sources.map((source, index) => (next[index] !== null && until[index]! >= newest ? source(next[index], signal) : null)));
    const state: State<T> = {
      rows: [...rows, ...pages.flatMap((page) => page?.rows ?? [])].sort((one, other) => timeOf(other) - timeOf(one)),
      next: pages.map((page, index) => (page ? page.next : next[index])),
      until: pages.map((page, index) => (page ? (page.next === null ? -Infinity : timeOf(page.rows.at(-1)!)) : until[index]!)),
    };
    const end = Math.max(...state.until);
    const ready = state.rows.filter((row) => timeOf(row) > end + TOGETHER);
    const page = ready.length ? ready : state.rows.filter((row) => timeOf(row) >= end);
    state.rows = state.rows.slice(page.length);
    if (end === -Infinity) return { rows: page, next: null };
    const token = JSON.stringify(state.next);
    states.set(token, state);
    return { rows: page, next: token };
  };
}
