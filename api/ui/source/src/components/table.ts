/** What a table shows. */
import type { Snippet } from "svelte";

export interface Column<T> {
  key: string;
  title: string;
  /** The word for `sort` of the API, if the list can be sorted by it. */
  sort?: string;
  /** Whether the first click sorts from large to small. */
  descending?: boolean;
  /** A track of CSS grid: `minmax(160px, 2fr)`, `90px`. */
  width?: string;
  align?: "right";
  /** Left out below this width of the table (pixels). */
  from?: number;
  /** On a phone a row is a card: its first line, its corner, a further value with or without its name, or left out. */
  card?: "title" | "corner" | "line" | "plain" | "hide";
  /** What is in the cell: a text, or a snippet for more than that. */
  text?: (row: T) => string | number | null | undefined;
  cell?: Snippet<[T]>;
}
