/** Live data: a request that is repeated while its component is there and the tab is visible. */
import { untrack } from "svelte";
import { ApiError } from "../api/client";
import { isAbort } from "../api/errors";

/** An interval: again only when the tab is looked at again, for what changes by the hour. */
export const ON_FOCUS = Infinity;
/** Seconds until what is asked `ON_FOCUS` is asked again after a failure, doubled with each. */
const RETRY = 2;
/** Seconds between requests after a failure, at most. */
const LONGEST = 30;

export class Poll<T> {
  /** The latest data; kept while later requests fail. */
  data = $state.raw<T | undefined>(undefined);
  /** What the latest request failed with; null after a success. */
  error = $state.raw<ApiError | null>(null);
  /** Whether the first request, or the first one with new filters, is under way. */
  loading = $state(true);
  /** The time of the last success (milliseconds), while requests fail. */
  failingSince = $state<number | null>(null);
  #ask: (signal: AbortSignal) => Promise<T>;
  #every: () => number;
  #controller: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #failures = 0;
  #last = Date.now();
  #stopped = false;

  constructor(ask: (signal: AbortSignal) => Promise<T>, every: () => number) {
    this.#ask = ask;
    this.#every = every;
  }

  /** Ask now: for the button "try again" and after a change. */
  refresh = (): Promise<void> => untrack(() => this.run());

  /** Begin with other filters: what was shown stays until the new data is there. */
  restart(): Promise<void> {
    this.#stopped = false;
    this.#failures = 0;
    untrack(() => (this.loading = true));
    return this.run();
  }

  run(): Promise<void> {
    clearTimeout(this.#timer);
    this.#controller?.abort();
    const controller = (this.#controller = new AbortController());
    const asked = this.#ask(controller.signal); // reads of state until its first `await` are tracked
    return this.#settle(asked, controller);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
    this.#controller?.abort();
  }

  /** The tab is visible again, or hidden. What is asked once, such as a form, is not asked anew. */
  seen(visible: boolean): void {
    if (this.#every() <= 0) return;
    if (visible) void this.restart();
    else this.stop();
  }

  /** Until the returned function is called: what `seen` does with the tab, and with its window where only that counts. */
  watch(): () => void {
    const seen = () => this.seen(!document.hidden);
    const events = [[document, "visibilitychange"], ...(this.#every() === ON_FOCUS ? [[window, "focus"] as const] : [])] as const;
    for (const [target, event] of events) target.addEventListener(event, seen);
    return () => {
      for (const [target, event] of events) target.removeEventListener(event, seen);
    };
  }

  async #settle(asked: Promise<T>, controller: AbortController): Promise<void> {
    try {
      this.#succeeded(await asked, controller);
    } catch (error) {
      if (controller.signal.aborted || isAbort(error)) return;
      this.#failed(error);
    }
    if (this.#controller === controller) this.#schedule();
  }

  #succeeded(data: T, controller: AbortController): void {
    if (controller.signal.aborted) return;
    this.data = data;
    this.error = null;
    this.loading = false;
    this.failingSince = null;
    this.#failures = 0;
    this.#last = Date.now();
  }

  #failed(error: unknown): void {
    if (!(error instanceof ApiError)) throw error;
    this.#failures += 1;
    this.error = error;
    this.loading = false;
    this.failingSince = this.#last;
  }

  #schedule(): void {
    const every = this.#every();
    if (this.#stopped || every <= 0 || document.hidden || final(this.error)) return;
    if (every === ON_FOCUS && this.error === null) return;
    const interval = every === ON_FOCUS ? RETRY : every / 1000;
    const pause = Math.max(this.error?.retryAfter ?? 0, Math.min(LONGEST, interval * 2 ** this.#failures));
    this.#timer = setTimeout(() => untrack(() => void this.run()), pause * 1000);
  }
}

/** Errors that another attempt doesn't change. */
function final(error: ApiError | null): boolean {
  return error !== null && [400, 403, 404].includes(error.status);
}

/**
 * Ask now and every `every` milliseconds; 0 asks once. To be called while a component is made. State that `ask` reads
 * before its first `await`, such as filters, starts it anew; the request before is aborted. Nothing is asked while the
 * tab is hidden.
 */
export function poll<T>(ask: (signal: AbortSignal) => Promise<T>, every: number | (() => number) = 5000): Poll<T> {
  const polled = new Poll(ask, typeof every === "number" ? () => every : every);
  $effect(() => {
    void polled.restart();
    return () => polled.stop();
  });
  $effect(() => polled.watch());
  return polled;
}
