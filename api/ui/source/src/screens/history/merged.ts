/** Several lists that go back in time as one. */
import type { CursorPage } from "../../lib/cursor.svelte";

export type Source<T> = (cursor: string | undefined, signal: AbortSignal) => Promise<CursorPage<T>>;

/** What is between two pages; the next cursor has it. */
interface State<T> {
  /** Rows that older ones of another source may come before. */
  rows: T[];
  /** The cursor of each source; null: it has no more. */
  next: (string | null | undefined)[];
  /** Until when each source is read, in milliseconds. */
  until: number[];
}

/** Milliseconds that rows of one thing may be apart: they are in one page, if that has others. */
const TOGETHER = 5000;

/** Pages of all sources, newest first. `timeOf` returns milliseconds. */
export function merged<T>(sources: readonly Source<T>[], timeOf: (row: T) => number): Source<T> {
  return async (cursor, signal) => {
    const { rows, next, until }: State<T> = cursor === undefined ? { rows: [], next: sources.map(() => undefined), until: sources.map(() => Infinity) } : JSON.parse(cursor);
    const left = next.map((each, index) => (each === null ? -Infinity : until[index]!));
    const newest = Math.max(...left);
    const pages = await Promise.all(sources.map((source, index) => (left[index]! > -Infinity && left[index] === newest ? source(next[index]!, signal) : null)));
    const state: State<T> = {
      rows: [...rows, ...pages.flatMap((page) => page?.rows ?? [])].sort((one, other) => timeOf(other) - timeOf(one)),
      next: pages.map((page, index) => (page ? page.next : next[index])),
      until: pages.map((page, index) => (page?.next ? timeOf(page.rows.at(-1)!) : until[index]!)),
    };
    const end = Math.max(...state.until.filter((_, index) => state.next[index] !== null));
    const ready = state.rows.filter((row) => timeOf(row) > end + TOGETHER);
    const page = ready.length ? ready : state.rows.filter((row) => timeOf(row) >= end);
    state.rows = state.rows.slice(page.length);
    return { rows: page, next: end === -Infinity ? null : JSON.stringify(state) };
  };
}
