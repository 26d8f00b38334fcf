/** What a table shows: its columns, which of them, how wide, and in which order its rows are. */
import type { Snippet } from "svelte";
import { kept } from "../lib/kept";
import { router } from "../lib/router.svelte";
import type { ValueKind } from "./Value.svelte";

export interface Column<T> {
  key: string;
  title: string;
  /** The word for `sort` of the API, if the list can be sorted by it. */
  sort?: string;
  /** What a list is sorted by that has all of its rows; without it, its text, unless that is a number with a unit (at the right). */
  value?: (row: T) => number | string | null | undefined;
  /** Whether the first click sorts from large to small. */
  descending?: boolean;
  /** A track of CSS grid until it is known what the cells need: `minmax(160px, 2fr)`, `90px`. What has `fr` may be narrower than its content. */
  width?: string;
  align?: "right";
  /** Left out below this width of the table (pixels), and where there is no room for it, unless the reader chose it. */
  from?: number;
  /** Left out unless the reader chose it. */
  hidden?: boolean;
  /** On a phone a row is a card: its first line, its corner, a further value with or without its name, or left out. */
  card?: "title" | "corner" | "line" | "plain" | "hide";
  /** What is in the cell: its value as this, a text, or a snippet for more than that. */
  as?: ValueKind;
  text?: (row: T) => string | number | null | undefined;
  cell?: Snippet<[T]>;
}

/** Pixels that a column may ask for: the longest name shall not take what all others need. */
const WIDEST = 380;
const NARROWEST = 48;
const LEAST = 90;

type Sized = Pick<Column<never>, "key" | "width" | "from">;

/** The tracks of a grid: what is no text of any length has what it needs, the others share what is left by what they need. */
export function tracksOf(columns: readonly Sized[], needs: Record<string, number>): string[] {
  return columns.map(({ key, width = `minmax(${LEAST}px, 1fr)` }) => {
    const need = needs[key];
    if (need === undefined) return width;
    const wanted = Math.max(NARROWEST, Math.min(WIDEST, Math.ceil(need)));
    return width.includes("fr") ? `minmax(${Math.min(wanted, pixels(width))}px, ${wanted}fr)` : `${wanted}px`;
  });
}

/** Whether so many pixels are known to be enough for what the cells of all columns need. */
export const isRoomy = (columns: readonly Sized[], room: number, needs: Record<string, number>): boolean =>
  columns.every(({ key }) => (needs[key] ?? WIDEST + 1) <= WIDEST) && columns.reduce((sum, { key }) => sum + Math.max(NARROWEST, needs[key]!), 0) <= room;

/** What its cells do with more than there is room for: `cut` it off, or nothing. A column that `fits` had room for all until now. */
export function cutOf({ key, width = "fr" }: Sized, needs: Record<string, number>, roomy: boolean): "cut" | "fits" | false {
  const shares = width.includes("fr");
  if (shares && roomy) return "fits";
  return (shares || (needs[key] ?? WIDEST + 1) > WIDEST) && "cut";
}

/** The least width of a track. */
export const pixels = (track: string): number => Number(/\d+/.exec(track)?.[0] ?? 0);

/** Those that there is room for: all without `from`, and of the others those with the smallest, as far as they fit. */
export function fitting<C extends Sized>(columns: readonly C[], room: number, needs: Record<string, number>): C[] {
  const least = new Map(columns.map((each) => [each, pixels(tracksOf([each], needs)[0]!)]));
  let left = room - columns.filter((each) => !each.from).reduce((sum, each) => sum + least.get(each)!, 0);
  const out = new Set<C>();
  for (const each of columns.filter(({ from }) => from).sort((one, other) => one.from! - other.from!)) {
    if (out.size || room < each.from! || least.get(each)! > left) out.add(each);
    else left -= least.get(each)!;
  }
  return columns.filter((each) => !out.has(each));
}

/** What rows are sorted by here in the order of a column; undefined where they can't be. */
export const valueOf = <T>({ value, text, align }: Column<T>): Column<T>["value"] => value ?? (align === "right" ? undefined : text);

/** Rows by the value of the column that `order` names (`-name`: from large to small); what has none comes last. */
export function sorted<T>(rows: readonly T[], columns: readonly Column<T>[], order: string): readonly T[] {
  const column = columns.find((each) => each.key === order.replace(/^-/, ""));
  const value = column && valueOf(column);
  if (!value) return rows;
  const sign = order.startsWith("-") ? -1 : 1;
  const has = (found: number | string | null | undefined): found is number | string => found !== null && found !== undefined;
  return rows
    .map((row) => ({ row, by: value(row) }))
    .sort(({ by: one }, { by: other }) => {
      if (!has(one) || !has(other)) return Number(has(other)) - Number(has(one));
      return sign * (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), undefined, { numeric: true }));
    })
    .map(({ row }) => row);
}

/** Tables with fewer columns have none to choose. */
export const FEW = 5;

/**
 * The columns that the reader chose for a table: those in the address, if it has a name for that, or those that this browser has kept.
 * To be made while a component is made.
 */
export class Shown {
  #view: string | undefined;
  #kept = $state.raw<string | null>(null);
  #name: string;

  /** `columns` are all that there are. */
  constructor(view: string | undefined, columns: readonly { key: string }[]) {
    this.#view = view;
    this.#name = `columns.${view ?? columns.map((each) => each.key).join(".")}`;
    this.#kept = kept.get(this.#name);
  }

  /** Their keys; null without a choice. */
  get keys(): string[] | null {
    const found = (this.#view && router.query.get("columns")) || this.#kept;
    return found ? found.split(",") : null;
  }

  /** The chosen ones, the first one in any case; null without a choice. On a card they are all there. */
  of<T>(columns: readonly Column<T>[]): Column<T>[] | null {
    const { keys } = this;
    if (!keys) return null;
    return columns.filter((each, index) => index === 0 || keys.includes(each.key)).map((each) => (each.card === "hide" ? { ...each, card: "line" } : each));
  }

  /** Add or remove a column. `shown` are those that are there now. */
  toggle(key: string, shown: readonly { key: string }[], all: readonly { key: string }[]): void {
    const keys = new Set(shown.map((each) => each.key));
    if (!keys.delete(key)) keys.add(key);
    this.#set(all.map((each) => each.key).filter((each) => keys.has(each)).join(","));
  }

  /** As if nothing had been chosen. */
  reset(): void {
    this.#set(null);
  }

  #set(keys: string | null): void {
    kept.set(this.#name, keys);
    this.#kept = keys;
    if (!this.#view) return;
    const query = new URLSearchParams(router.query);
    if (keys === null) query.delete("columns");
    else query.set("columns", keys);
    router.search(query);
  }
}
