/** Filters, order, page and time range in the query string of the address, so that a link shows the same. */
import { router } from "./router.svelte";

/** How one filter is written in the address. `read` returns the default for what it can't read. */
export interface Filter<T> {
  read(text: string | null): T;
  write(value: T): string | null;
}

/** Any text; empty by default. */
export const text = (): Filter<string> => ({ read: (found) => found ?? "", write: (value) => value || null });

/** One of these words, or none. */
export const choice = <W extends string>(words: readonly W[], otherwise: W | "" = ""): Filter<W | ""> => ({
  read: (found) => (words.includes(found as W) ? (found as W) : otherwise),
  write: (value) => (value === otherwise ? null : value),
});

/** A whole number, at least 1. */
export const number = (otherwise = 1): Filter<number> => ({
  read: (found) => (found !== null && /^[1-9][0-9]{0,8}$/.test(found) ? Number(found) : otherwise),
  write: (value) => (value === otherwise ? null : String(value)),
});

/** Several texts, separated by commas. */
export const list = (): Filter<string[]> => ({
  read: (found) => (found ? found.split(",").filter(Boolean) : []),
  write: (value) => value.join(",") || null,
});

/** On or off. */
export const flag = (): Filter<boolean> => ({ read: (found) => found === "1", write: (value) => (value ? "1" : null) });

type Values<S> = { [N in keyof S]: S[N] extends Filter<infer T> ? T : never };

export class Filters<S extends Record<string, Filter<any>>> {
  #schema: S;

  constructor(schema: S) {
    this.#schema = schema;
  }

  /** The values now; reactive. */
  get values(): Values<S> {
    const found = Object.entries(this.#schema).map(([name, each]) => [name, each.read(router.query.get(name))]);
    return Object.fromEntries(found) as Values<S>;
  }

  /** Change some of them in the address; the page goes back to 1 unless it is one of them. */
  set(changes: Partial<Values<S>>, options: { push?: boolean } = {}): void {
    const query = new URLSearchParams(router.query);
    if (!("page" in changes)) query.delete("page");
    for (const [name, value] of Object.entries(changes)) {
      const written = (this.#schema[name] as Filter<unknown>).write(value);
      if (written === null) query.delete(name);
      else query.set(name, written);
    }
    router.search(query, options);
  }

  /** Remove all of them, except order and time range. */
  clear(): void {
    const query = new URLSearchParams(router.query);
    for (const name of Object.keys(this.#schema)) if (!KEPT.has(name)) query.delete(name);
    router.search(query);
  }

  /** Whether any of them narrows the list. */
  get any(): boolean {
    return Object.keys(this.#schema).some((name) => !KEPT.has(name) && router.query.has(name));
  }
}

const KEPT = new Set(["sort", "page", "from", "to", "range"]);

/** `const f = filters({ q: text(), state: choice(["active"]), page: number() })`, then `f.values.q`, `f.set({ q })`. */
export function filters<S extends Record<string, Filter<any>>>(schema: S): Filters<S> {
  return new Filters(schema);
}
