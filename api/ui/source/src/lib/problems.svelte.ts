/** What needs attention, by the area where it is dealt with: for badges in the navigation, the title and the icon of the page. */
import type { Schemas } from "../api/client";

type Attention = Schemas["Overview"]["attention"];
type Entry = Attention["entries"][number];

/** The area of each kind; what is dealt with on no screen counts at the overview alone. */
const AREA: Partial<Record<Entry["kind"], string>> = {
  proxy: "proxies",
  certificate: "proxies",
  pool: "pools",
  list: "lists",
  account: "accounts",
  webhook: "webhooks",
  user: "users",
};

export interface Problem {
  n: number;
  /** Whether one of them is an error. */
  severe: boolean;
}

class Problems {
  #list = $state.raw<Attention>({ total: 0, entries: [] });

  /** The number of all. */
  get n(): number {
    return this.#list.total;
  }

  set(list: Attention): void {
    this.#list = list;
  }

  /** Those of some areas; null without any. All of them are at the overview. */
  at(...areas: string[]): Problem | null {
    const all = areas.includes("overview");
    const found = this.#list.entries.filter(({ kind, id }) => all || areas.includes((kind === "certificate" && !id ? "settings" : AREA[kind]) ?? ""));
    return found.length ? { n: all ? this.n : found.length, severe: found.some(({ severity }) => severity === "error") } : null;
  }
}

export const problems = new Problems();
