/** Short messages about what was done. Errors stay until they are dismissed. */
import { ApiError } from "../api/client";
import { explained } from "./explained";

export interface Toast {
  id: number;
  kind: "done" | "error";
  text: string;
  detail: string | null;
  action: { title: string; run: () => void } | null;
}

/** Milliseconds that a message about a success stays. */
const SHOWN = 5000;
const MOST = 4;

class Toasts {
  all = $state.raw<Toast[]>([]);
  #places = $state.raw<symbol[]>([]);
  #next = 1;

  /** A place for messages is there, above those that are there already, until the returned function is called. */
  open(place: symbol): () => void {
    this.#places = [...this.#places, place];
    return () => (this.#places = this.#places.filter((each) => each !== place));
  }

  /** The messages of a place: all of them, if it is the uppermost. */
  of(place: symbol): Toast[] {
    return this.#places.at(-1) === place ? this.all : [];
  }

  done(text: string, action: Toast["action"] = null): void {
    const toast = this.#add({ kind: "done", text, detail: null, action });
    setTimeout(() => this.dismiss(toast), action ? SHOWN * 2 : SHOWN);
  }

  /** Show why something failed; an error that is no `ApiError` is thrown on. */
  failed(error: unknown, text: string): void {
    if (!(error instanceof ApiError)) throw error;
    const id = error.requestId ? ` · ${error.requestId}` : "";
    this.#add({ kind: "error", text, detail: explained(error) + id, action: null });
  }

  /** Something else than was hoped for, though no request failed. */
  problem(text: string): void {
    this.#add({ kind: "error", text, detail: null, action: null });
  }

  dismiss(id: number): void {
    this.all = this.all.filter((each) => each.id !== id);
  }

  /** When another user signs in, nothing of the one before is left. */
  clear(): void {
    this.all = [];
  }

  #add(toast: Omit<Toast, "id">): number {
    const id = this.#next++;
    this.all = [...this.all, { ...toast, id }].slice(-MOST);
    return id;
  }
}

export const toasts = new Toasts();
