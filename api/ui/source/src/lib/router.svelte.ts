/** The address as state. Plain links below `/ui/` are followed without loading the page anew. */
import { tick } from "svelte";
import { placed } from "./places";

export const BASE = "/ui";

/** Milliseconds after a scroll until its place is kept: browsers refuse too many changes of their history. */
const CALM = 400;
/** Milliseconds in which a list may grow to the place that it is scrolled back to. */
const GROWING = 20_000;
const TOUCHED = ["wheel", "pointerdown", "touchstart", "keydown"] as const;

/** What an entry of the history keeps of its screen: how far it was scrolled, and the row that had the focus. */
interface Kept {
  y: number;
  row?: { list: string; row: number } | null;
}

class Router {
  /** The path below `/ui`, such as `/proxies/prx_1`. */
  path = $state("/");
  /** The query string as parameters. Read it with `filters` where it holds filters. */
  query = $state.raw(new URLSearchParams());
  /** The list and the row in it that have the focus. */
  row: Kept["row"] = null;
  /** Those of the entry of the history that the reader came back to. */
  returned: Kept["row"] = null;
  #leave: (() => boolean) | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #growing: AbortController | null = null;

  /** Begin to follow the address; once, at the start. */
  start(): void {
    this.#read();
    history.scrollRestoration = "manual"; // a list is longer than its screen as it comes
    addEventListener("popstate", (event) => this.#returned(event.state as Kept | null));
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    document.addEventListener("click", (event) => this.#clicked(event));
    void this.#scroll((history.state as Kept | null)?.y ?? 0);
  }

  /** Go to a path below `/ui`, which may have a query string. */
  go(target: string, options: { replace?: boolean } = {}): void {
    if (!options.replace && this.#leave && !this.#leave()) return;
    this.#leave = null;
    const before = this.path;
    if (!options.replace) this.#keep();
    this.#growing?.abort();
    history[options.replace ? "replaceState" : "pushState"](null, "", BASE + placed(target));
    this.row = this.returned = null;
    this.#read();
    if (this.path !== before) void this.#arrive();
  }

  /** Replace the query string, and keep the place in the page. */
  search(query: URLSearchParams, options: { push?: boolean } = {}): void {
    const text = query.toString();
    if (options.push) this.#keep();
    history[options.push ? "pushState" : "replaceState"](options.push ? null : history.state, "", BASE + this.path + (text ? `?${text}` : ""));
    this.query = query;
  }

  /** Ask before leaving, such as while a form has changes: `ask` returns whether to leave. */
  guard(ask: (() => boolean) | null): void {
    this.#leave = ask;
  }

  /** The path with its query string, for the way back after a sign-in. */
  get here(): string {
    const text = this.query.toString();
    return this.path + (text ? `?${text}` : "");
  }

  /** An address of before becomes the one of now. */
  #read(): void {
    const given = location.pathname.slice(BASE.length) + location.search;
    if (placed(given) !== given) history.replaceState(history.state, "", BASE + placed(given));
    const path = decoded(location.pathname.slice(BASE.length)).replace(/(?<!\/)\/+$/, "");
    this.path = path || "/";
    this.query = new URLSearchParams(location.search);
  }

  #scrolled(): void {
    clearTimeout(this.#timer);
    if (!this.#growing) this.#timer = setTimeout(() => this.#keep(), CALM);
  }

  /** Keep the place in the screen with its entry of the history. */
  #keep(): void {
    clearTimeout(this.#timer);
    if (!this.#growing) history.replaceState({ y: scrollY, row: this.row } satisfies Kept, "");
  }

  /** Back or forward: to the place that the entry of the history had. */
  #returned(kept: Kept | null): void {
    clearTimeout(this.#timer);
    this.row = this.returned = kept?.row ?? null;
    this.#read();
    void this.#scroll(kept?.y ?? 0);
  }

  /** A list is scrolled down as its pages come, until it is as long as it was or the reader goes elsewhere. */
  async #scroll(y: number): Promise<void> {
    this.#growing?.abort();
    const growing = (this.#growing = new AbortController());
    await tick();
    if (growing.signal.aborted) return;
    const observer = new ResizeObserver(() => {
      const most = document.documentElement.scrollHeight - innerHeight;
      scrollTo(0, Math.min(y, most));
      if (most >= y) growing.abort();
    });
    growing.signal.addEventListener("abort", () => {
      observer.disconnect();
      if (this.#growing === growing) this.#growing = null;
    });
    for (const each of TOUCHED) addEventListener(each, () => growing.abort(), { signal: growing.signal, passive: true });
    setTimeout(() => growing.abort(), GROWING);
    observer.observe(document.documentElement);
  }

  /** A new screen begins at its top, with the focus on its content. */
  async #arrive(): Promise<void> {
    await tick();
    scrollTo(0, 0);
    document.getElementById("content")?.focus({ preventScroll: true });
  }

  #clicked(event: MouseEvent): void {
    const modified = event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button !== 0;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (event.defaultPrevented || modified || !link || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !(link.pathname + "/").startsWith(`${BASE}/`)) return;
    event.preventDefault();
    this.go(link.pathname.slice(BASE.length) + link.search || "/");
  }
}

export const router = new Router();

/** The `href` of a path below `/ui`, or of one that the API has for an object; parts are encoded, empty parameters left out. */
export function url(path: string, query: Record<string, string | number | null | undefined> = {}): string {
  const set = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return BASE + placed(path + (text ? `?${text}` : ""));
}

/** The parameters of `path` if it has the form of `pattern`: `/proxies/:id/:tab?`; else null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  const found: Record<string, string> = {};
  if (given.length > wanted.length) return null;
  for (const [index, part] of wanted.entries()) {
    const value = given[index];
    if (value === undefined) {
      if (!part.endsWith("?")) return null;
    } else if (part.startsWith(":")) found[part.replace(/[:?]/g, "")] = value;
    else if (part !== value) return null;
  }
  return found;
}

function decoded(path: string): string {
  try {
    return decodeURI(path);
  } catch {
    return path;
  }
}
