/**
 * Where the focus is in a list, by the ARIA grid pattern: on a row, or on a value in one of its cells. It stays with the
 * row that it is on when others come and go, although elements are used again for other rows.
 */

/** What the list has now. */
export interface Rows {
  body: () => HTMLElement | undefined;
  total: () => number;
  /** The rows in the document: from, and to (without it). */
  span: () => readonly [number, number];
  /** The id of the row at an index; undefined while it is loaded. */
  id: (index: number) => string | undefined;
  /** Bring a row into the window, and wait until it is in the document. */
  reveal: (index: number) => Promise<void>;
}

interface Place {
  index: number;
  id: string | undefined;
  /** Which value in the row; null: the row itself. */
  stop: number | null;
}

const WIDGETS = "a[href], button:not(:disabled), input:not(:disabled)";

export class GridFocus {
  #rows: Rows;
  #at: Place | null = null;

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /** The index of the row that has the focus; null without one. */
  get index(): number | null {
    return this.#at?.index ?? null;
  }

  /** The number of the value in that row; null: the row itself. */
  get stop(): number | null {
    return this.#at?.stop ?? null;
  }

  /** The focus came to an element in a row. */
  entered(element: Element): void {
    const row = element.closest<HTMLElement>("[data-index]");
    if (!row) return;
    const index = Number(row.dataset.index);
    const stop = element === row ? null : stops(row).findIndex((each) => each.contains(element));
    this.#at = { index, id: this.#rows.id(index), stop };
  }

  /** It left an element. A dialog and a menu give it back; an element that was removed or hidden did not lose it by its reader. */
  left({ target, relatedTarget: to }: FocusEvent): void {
    if (to instanceof Element) {
      if (!this.#rows.body()?.contains(to) && !to.closest("dialog, [role=menu]")) this.#at = null;
    } else setTimeout(() => document.activeElement === document.body && (target as Element).checkVisibility({ visibilityProperty: true }) && (this.#at = null));
  }

  /** To the row at an index, or to the value in it that has this number. */
  async go(index: number, stop: number | null = null): Promise<void> {
    const to = Math.max(0, Math.min(this.#rows.total() - 1, index));
    await this.#rows.reveal(to);
    this.#focus(to, stop, true);
  }

  /** To the row with this id, if it is in the document; else to the list, where a key goes on. */
  back(id: string): void {
    const [from, to] = this.#rows.span();
    for (let index = from; index < to; index += 1) if (this.#rows.id(index) === id) return this.#focus(index, null, false);
    this.#rows.body()?.focus({ preventScroll: true });
  }

  /** Along the values of the row; before the first one is the row itself. */
  along(row: HTMLElement, by: number | "first" | "last"): void {
    const all = stops(row);
    const now = this.#at?.stop ?? -1;
    const next = by === "first" ? 0 : by === "last" ? all.length - 1 : Math.min(all.length - 1, now + by);
    const index = Number(row.dataset.index);
    this.#focus(index, next < 0 ? null : next, true);
  }

  /** Rows have changed: to where the row is now, or to the one that follows it when it is gone. `back`: the focus is elsewhere. */
  follow(back = false): void {
    const at = this.#at;
    const body = this.#rows.body();
    const active = document.activeElement;
    if (!at || !body || !(back || active === document.body || body.contains(active))) return;
    const total = this.#rows.total();
    const [from, to] = this.#rows.span();
    if (total === 0) return;
    if (at.index < total && (at.index < from || at.index >= to)) {
      if (active !== body) body.focus({ preventScroll: true }); // scrolled away: the element has another row now
      return;
    }
    const places = Array.from({ length: to - from }, (_, place) => from + place);
    const found = at.id === undefined ? at.index : places.find((index) => this.#rows.id(index) === at.id);
    const index = found ?? Math.min(at.index, total - 1);
    if (this.#rows.id(index) === undefined) return; // it is being loaded
    this.#focus(index, found === undefined ? null : at.stop, false);
  }

  #focus(index: number, stop: number | null, seen: boolean): void {
    const row = this.#rows.body()?.querySelector<HTMLElement>(`[data-index="${index}"]`);
    if (!row) return;
    const id = this.#rows.id(index);
    const target = stop === null || id === undefined ? row : (stops(row)[stop] ?? row); // what is loaded is not there yet
    if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
    if (document.activeElement !== target) {
      target.focus({ preventScroll: true });
      if (seen) target.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    this.#at = { index, id, stop: target === row && id !== undefined ? null : stop };
  }
}

/** What can have the focus in a row: the widgets of each cell, or the cell itself where it has none. */
function stops(row: HTMLElement): HTMLElement[] {
  return [...row.children].flatMap((cell) => {
    const widgets = [...cell.querySelectorAll<HTMLElement>(WIDGETS)];
    return widgets.length ? widgets : [cell as HTMLElement];
  });
}
