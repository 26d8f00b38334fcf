/** An object that is edited in a form: what it was, what it is to be, and what the API says about its fields. */
import { ApiError } from "../api/client";
import { changes, differences, merged } from "./differences";
import { explained } from "./explained";
import { router } from "./router.svelte";
import { toasts } from "./toasts.svelte";

export interface Loaded<T> {
  data: T;
  etag: string | null;
}

export class Draft<T extends object> {
  /** As it was loaded. */
  original = $state.raw() as T;
  /** As the form has it; inputs bind to its fields. */
  value = $state() as T;
  /** As it is stored now, where another person or program has changed it meanwhile. */
  theirs = $state.raw<T | null>(null);
  busy = $state(false);
  /** What is wrong with it as a whole. */
  problem = $state("");
  #etag: string | null;
  #errors = $state.raw<Record<string, string>>({});
  /** What they are about: the entries of a list may be others by now. */
  #refusedValue: unknown = null;

  constructor(loaded: Loaded<T>) {
    this.#etag = loaded.etag;
    this.reset(loaded.data);
  }

  /** Of what is not stored yet. */
  static of<T extends object>(blank: T): Draft<T> {
    return new Draft({ data: blank, etag: null });
  }

  /** Errors by the path of a field: `settings.timeout`. */
  get errors(): Record<string, string> {
    return this.#errors;
  }
  set errors(found: Record<string, string>) {
    this.#refusedValue = $state.snapshot(this.value);
    this.#errors = found;
  }

  /** The body of a PATCH; empty when nothing is different. */
  get patch(): Partial<T> {
    return changes(this.original, $state.snapshot(this.value) as T);
  }

  /** How many fields are different. */
  get count(): number {
    return differences(this.original, $state.snapshot(this.value)).length;
  }

  /** What was typed, in the fields that were changed here; theirs in all others. */
  get beside(): T {
    return merged(this.original, $state.snapshot(this.value) as T, this.theirs ?? this.original);
  }

  /** The error of a field or of what is within it: `upstreams` also has that of `upstreams[2].port`. An entry of a list of texts is named by its text. */
  error = (path: string): string | null => {
    const own = this.errors[path];
    if (own) return own;
    const within = Object.keys(this.errors).find((each) => each.startsWith(`${path}.`) || each.startsWith(`${path}[`));
    if (!within) return null;
    const rest = within.slice(path.length).replace(/^\./, "");
    return `${this.#entry(path, rest) ?? rest}: ${this.errors[within]}`;
  };

  /** The text of the entry `[2]` of the list at `path`; undefined where it is none. */
  #entry(path: string, rest: string): string | undefined {
    const at = /^\[(\d+)\]$/.exec(rest);
    const list = path.split(".").reduce<unknown>((found, name) => (found as Record<string, unknown> | null | undefined)?.[name], this.#refusedValue);
    const entry: unknown = at && Array.isArray(list) ? list[Number(at[1])] : undefined;
    return typeof entry === "string" ? entry : undefined;
  }

  /** Continue with this as what is stored; what was typed is lost. */
  reset(stored: T = this.original): void {
    this.original = stored;
    this.value = structuredClone(stored);
    this.errors = {};
    this.problem = "";
    this.theirs = null;
  }

  /** Send something new, or an order: what is wrong with it is in `errors` and `problem` then. Returns whether it was taken. */
  async send(task: (value: T) => Promise<unknown>): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    this.errors = {};
    this.problem = "";
    try {
      await task($state.snapshot(this.value) as T);
      return true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.errors = error.fields;
      this.problem = explained(error);
      return false;
    } finally {
      this.busy = false;
    }
  }

  /**
   * Send the changes: `change` gets the header with the ETag, and that, and `load` reads what is stored then, or was stored meanwhile by others.
   * Errors of fields go to `errors`, others to a message with `said.failed` before them. Returns whether it was stored.
   */
  async save(change: (header: Record<string, string>, etag: string | null) => Promise<unknown>, load: () => Promise<Loaded<T>>, said: { done: string; failed: string }): Promise<boolean> {
    if (this.busy) return false;
    this.busy = true;
    try {
      await change(this.#etag ? { "If-Match": this.#etag } : {}, this.#etag);
      const stored = await load();
      this.#etag = stored.etag;
      this.reset(stored.data);
      router.guard(null);
      toasts.done(said.done);
      return true;
    } catch (error) {
      await this.#refused(error, load, said.failed);
      return false;
    } finally {
      this.busy = false;
    }
  }

  /** After a change by another person or program: keep what was typed beside theirs, to be saved next time. */
  keepMine(): void {
    if (this.theirs) [this.value, this.original] = [structuredClone(this.beside), this.theirs];
    this.theirs = null;
  }

  async #refused(error: unknown, load: () => Promise<Loaded<T>>, failed: string): Promise<void> {
    if (!(error instanceof ApiError)) throw error;
    if (error.status === 412) {
      const stored = await load();
      this.#etag = stored.etag;
      this.theirs = stored.data;
      return;
    }
    this.errors = error.fields;
    if (Object.keys(error.fields).length === 0) toasts.failed(error, failed);
  }
}
