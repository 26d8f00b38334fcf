/** The fleet as the page knows it: its nodes, whether the asked one is cut off, and which nodes a screen lacks. */
import type { Schemas } from "../api/client";
import { t } from "../texts";

export type Node = Schemas["NodeView"];
type Missing = Schemas["MissingNode"];

/** Seconds that two responses may differ by on when the database was there last: they have whole ones. */
const SAME = 5;

export class Fleet {
  /** All nodes, or the one machine; none until they are known, and for users who may not read them. */
  nodes = $state.raw<Node[]>([]);
  /** While the asked node is cut off from the database: when that responded last (milliseconds). */
  cutOffSince = $state<number | null>(null);
  /** By the path that was read, the nodes that are not in the response. */
  #missing = $state.raw(new Map<string, Missing[]>());

  /** Whether this is a fleet, be it of one node. */
  get exists(): boolean {
    return this.nodes.some((each) => each.id !== null);
  }

  get several(): boolean {
    return this.nodes.length > 1;
  }

  /** The filter by node of a list (`FiltersBar`); none where there are no several. */
  choices(): { key: string; title: string; options: { value: string; title: string }[] }[] {
    const options = this.nodes.map(({ name }) => ({ value: name, title: name }));
    return this.several ? [{ key: "node", title: t("nodes.node"), options }] : [];
  }

  /** Nodes that what is on the screen lacks, each once. */
  get missing(): Missing[] {
    return [...new Map([...this.#missing.values()].flat().map((each) => [each.node, each])).values()];
  }

  /** Take what a response says of the database. */
  responded({ headers }: Response): void {
    const stale = headers.get("X-Config-Stale");
    const since = stale === null ? null : Date.now() - Number(stale) * 1000;
    if (since === null || this.cutOffSince === null || Math.abs(since - this.cutOffSince) > SAME * 1000) this.cutOffSince = since;
  }

  /** Take which nodes the content lacks that was read at this path. */
  read(path: string, content: unknown): void {
    const missing = (content as { meta?: { missing_nodes?: Missing[] } } | null)?.meta?.missing_nodes ?? [];
    if (missing.length || this.#missing.get(path)?.length) this.#missing = new Map(this.#missing).set(path, missing);
  }

  /** Another screen is there. */
  left(): void {
    this.#missing = new Map();
  }
}

export const fleet = new Fleet();
