/** Where traffic flows, as a Sankey diagram: what is drawn of the response, and what a node leads to. */
import { sankey } from "d3-sankey";
import type { Schemas } from "../../api/client";
import { url } from "../../lib/router.svelte";

export type Flow = Schemas["TrafficFlow"];
export type FlowNode = Flow["accounts"][number];
type FlowLink = Flow["links"][number];

/** What is drawn as width. */
export const WEIGHTS = ["bytes", "requests"] as const;
export type Weight = (typeof WEIGHTS)[number];
export const COLUMNS = ["accounts", "proxies", "exits", "targets"] as const;

/** Pixels: the width of a bar, and the least height and width of what the pointer has to meet. */
const BAR = 10;
export const TARGET = 24;
/** The least part of the height that a link with something has. */
const LEAST = 0.004;

export interface DrawnNode {
  node: FlowNode;
  column: number;
  x: number;
  y: number;
  height: number;
  /** The part of its requests that were refused or failed. */
  refused: number;
}

export interface DrawnLink {
  key: string;
  path: string;
  width: number;
  refused: number;
  link: FlowLink;
}

export const weightOf = (figures: { rate_in: number; rate_out: number; requests: number }, by: Weight): number =>
  by === "bytes" ? figures.rate_in + figures.rate_out : figures.requests;

const refusedPart = ({ requests, refused }: { requests: number; refused: number }): number => (requests > 0 ? refused / requests : 0);

/** The diagram in a box of this size; links without weight and nodes without links are left out. */
export function drawn(flow: Flow, by: Weight, width: number, height: number): { nodes: DrawnNode[]; links: DrawnLink[] } {
  const columns = COLUMNS.map((name) => flow[name]);
  const all = Math.max(...columns.map((nodes) => nodes.reduce((sum, node) => sum + weightOf(node, by), 0)), 0);
  const wanted = flow.links.filter((link) => weightOf(link, by) > 0);
  const used = new Set(wanted.flatMap((link) => [link.source, link.target]));
  const nodes = columns.flatMap((found, column) => found.filter((node) => used.has(node.key)).map((node) => ({ key: node.key, node, column })));
  if (nodes.length === 0 || all === 0) return { nodes: [], links: [] };
  const layout = sankey<{ key: string; node: FlowNode; column: number }, { link: FlowLink }>()
    .nodeId((node) => node.key)
    .nodeAlign((node) => node.column)
    .nodeSort(() => 0)
    .nodeWidth(BAR)
    .nodePadding(TARGET) // targets of the lowest do not overlap
    .extent([[0, 4], [width, height - 4]]);
  const graph = layout({ nodes, links: wanted.map((link) => ({ source: link.source, target: link.target, value: Math.max(weightOf(link, by), all * LEAST), link })) });
  return {
    nodes: graph.nodes.map(({ node, column, x0 = 0, y0 = 0, y1 = 0 }) => ({ node, column, x: x0, y: y0, height: Math.max(1, y1 - y0), refused: refusedPart(node) })),
    links: graph.links.map((each) => ({ key: `${each.link.source} ${each.link.target}`, path: pathOf(each), width: Math.max(1, each.width ?? 1), refused: refusedPart(each.link), link: each.link })),
  };
}

/** The middle of a link: level where it leaves its source and where it comes to its target. */
function pathOf({ source, target, y0, y1 }: { source: unknown; target: unknown; y0?: number | undefined; y1?: number | undefined }): string {
  const [from, to] = [(source as { x1: number }).x1, (target as { x0: number }).x0];
  const middle = (from + to) / 2;
  return `M${from},${y0}C${middle},${y0} ${middle},${y1} ${to},${y1}`;
}

/** The query of the flow through a node. */
export function through(node: FlowNode | null): Partial<Record<"account" | "proxy_id" | "exit" | "host", string>> {
  if (node === null || node.others > 0) return {};
  if (node.kind === "account") return { account: node.name ?? "" };
  if (node.kind === "proxy") return { proxy_id: node.id ?? "" };
  return node.kind === "target" ? { host: node.name ?? "" } : { exit: node.key };
}

/** Where a node is dealt with, and its records; null where there is nothing of the kind. */
export function placesOf(node: FlowNode): { page: string | null; log: string | null } {
  const range = { range: "5m" };
  if (node.others > 0) return { page: null, log: null };
  if (node.kind === "proxy") return { page: node.name === null ? null : url(`/proxies/${node.id}`), log: url("/logs", { ...range, proxy: node.id ?? "" }) };
  if (node.kind === "account") return { page: node.name === null ? null : url("/accounts", { q: node.name }), log: node.name === null ? null : url("/logs", { ...range, user: node.name }) };
  if (node.kind === "target") return { page: null, log: node.name === null ? null : url("/logs", { ...range, target: node.name }) };
  return { page: node.kind === "pool" ? url("/pools", { q: node.name ?? "" }) : null, log: null };
}
