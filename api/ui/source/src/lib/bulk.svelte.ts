/** One action on many objects: how far it is, which of them failed and why. The others are done all the same. */
import { ApiError } from "../api/errors";
import { explained } from "./explained";

export interface Chosen {
  id: string;
  name: string;
}
/** Objects that failed for one reason. */
export interface Failure {
  reason: string;
  requestId: string | null;
  objects: Chosen[];
}
export interface Outcome {
  title: string;
  total: number;
  done: number;
  /** Not tried, since it was ended before. */
  left: number;
  failures: Failure[];
}

/** Requests at the same time. */
const AT_ONCE = 4;

export class Bulk {
  /** What is under way. */
  running = $state.raw<{ title: string; total: number } | null>(null);
  done = $state(0);
  failed = $state(0);
  /** The end of the last one that did not do everything; null when that was read. */
  outcome = $state.raw<Outcome | null>(null);
  #ended = false;
  #failures = new Map<string, Failure>();
  #wait: (seconds: number) => Promise<void>;

  constructor(wait: (seconds: number) => Promise<void> = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000))) {
    this.#wait = wait;
  }

  /** Begin nothing more. */
  end = (): void => {
    this.#ended = true;
  };

  /** A request for each object. Returns the ids of those that failed or were left out. */
  async each(title: string, objects: readonly Chosen[], one: (id: string) => Promise<unknown>): Promise<Set<string>> {
    const left = [...objects].reverse();
    const worker = async () => {
      for (let each = this.#ended ? undefined : left.pop(); each; each = this.#ended ? undefined : left.pop()) await this.#send([each], () => one(each!.id));
    };
    return this.#run(title, objects, left, () => Promise.all(Array.from({ length: AT_ONCE }, worker)));
  }

  /** A request for up to `size` objects, all of them or none; what an error names by its place is left out then. */
  async batches(title: string, objects: readonly Chosen[], size: number, send: (ids: string[]) => Promise<unknown>): Promise<Set<string>> {
    const left = [...objects];
    return this.#run(title, objects, left, async () => {
      while (left.length && !this.#ended) await this.#batch(left.splice(0, size), send);
    });
  }

  async #run(title: string, objects: readonly Chosen[], left: Chosen[], work: () => Promise<unknown>): Promise<Set<string>> {
    if (this.running || !objects.length) return new Set(objects.map((each) => each.id));
    this.#ended = false;
    this.#failures = new Map();
    this.done = this.failed = 0;
    this.outcome = null;
    this.running = { title, total: objects.length };
    try {
      await work();
    } finally {
      this.running = null;
    }
    const failures = [...this.#failures.values()];
    if (failures.length || left.length) this.outcome = { title, total: objects.length, done: this.done, left: left.length, failures };
    return new Set([...left, ...failures.flatMap((each) => each.objects)].map((each) => each.id));
  }

  async #batch(objects: Chosen[], send: (ids: string[]) => Promise<unknown>): Promise<void> {
    let rest = objects;
    while (rest.length) {
      const error = await this.#send(rest, () => send(rest.map((each) => each.id)), true);
      if (error === null) return;
      const wrong = placed(error, rest.length);
      if (!wrong.size) return this.#fail(rest, error, explained(error));
      for (const [index, reason] of wrong) this.#fail([rest[index]!], error, reason);
      rest = rest.filter((_, index) => !wrong.has(index));
    }
  }

  /** Waits where the service asks for it. Returns the error, unless there was none. */
  async #send(objects: Chosen[], request: () => Promise<unknown>, judged = false): Promise<ApiError | null> {
    for (;;) {
      try {
        await request();
        this.done += objects.length;
        return null;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.status === 429 && error.retryAfter !== null && !this.#ended) {
          await this.#wait(error.retryAfter);
          continue;
        }
        if (!judged) this.#fail(objects, error, explained(error));
        return error;
      }
    }
  }

  #fail(objects: Chosen[], error: ApiError, reason: string): void {
    const known = this.#failures.get(reason);
    this.#failures.set(reason, { reason, requestId: known?.requestId ?? error.requestId, objects: [...(known?.objects ?? []), ...objects] });
    this.failed += objects.length;
  }
}

/** The errors of entries by their places: of `ids[3]`, `update[3].tags`, `delete[3]`. */
function placed(error: ApiError, total: number): Map<number, string> {
  const found = new Map<number, string>();
  for (const [field, text] of Object.entries(error.fields)) {
    const place = /^\w+\[(\d+)\]\.?(.*)$/.exec(field);
    if (place && Number(place[1]) < total) found.set(Number(place[1]), place[2] && place[2] !== "id" ? `${place[2]}: ${text}` : text);
  }
  return found;
}
