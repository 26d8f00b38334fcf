/** The address as state. Plain links below `/ui/` are followed without loading the page anew. */
import { tick } from "svelte";

export const BASE = "/ui";

class Router {
  /** The path below `/ui`, such as `/proxies/prx_1`. */
  path = $state("/");
  /** The query string as parameters. Read it with `filters` where it holds filters. */
  query = $state.raw(new URLSearchParams());
  #leave: (() => boolean) | null = null;

  /** Begin to follow the address; once, at the start. */
  start(): void {
    this.#read();
    addEventListener("popstate", () => this.#read());
    document.addEventListener("click", (event) => this.#clicked(event));
  }

  /** Go to a path below `/ui`, which may have a query string. */
  go(target: string, options: { replace?: boolean } = {}): void {
    if (!options.replace && this.#leave && !this.#leave()) return;
    this.#leave = null;
    const before = this.path;
    history[options.replace ? "replaceState" : "pushState"](null, "", BASE + target);
    this.#read();
    if (this.path !== before) void this.#arrive();
  }

  /** Replace the query string, and keep the place in the page. */
  search(query: URLSearchParams, options: { push?: boolean } = {}): void {
    const text = query.toString();
    history[options.push ? "pushState" : "replaceState"](null, "", BASE + this.path + (text ? `?${text}` : ""));
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

  #read(): void {
    const path = decoded(location.pathname.slice(BASE.length)).replace(/(?<!\/)\/+$/, "");
    this.path = path || "/";
    this.query = new URLSearchParams(location.search);
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

/** The `href` of a path below `/ui`; parts are encoded, empty parameters left out. */
export function url(path: string, query: Record<string, string | number | null | undefined> = {}): string {
  const set = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return BASE + path + (text ? `?${text}` : "");
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
