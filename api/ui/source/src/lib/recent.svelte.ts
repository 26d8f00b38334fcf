/** What the visible rows of a list did lately: one request for all of them, each time that five seconds more are over. */
import { untrack } from "svelte";
import { api, data, type Schemas } from "../api/client";
import { poll } from "./poll.svelte";
import { session } from "./session.svelte";

export type Recent = Schemas["RecentActivity"];

/** Milliseconds: the API sums up five seconds. */
const EVERY = 5000;
/** Milliseconds without other rows: not for each that passes by. */
const CALM = 250;
/** What one request may ask for. */
const MOST = 200;
/** What a picture has, in milliseconds. */
const MINUTE = 60_000;

export interface RecentRows {
  /** The ids of the rows that are visible. */
  see: (ids: readonly string[]) => void;
  /** undefined while it is not known, or may not be. */
  of: (id: string) => Recent | undefined;
}

/** To be called while a component is made; `beside` has the id of what is open beside the list, empty for nothing. */
export function recentOf(beside: () => string = () => ""): RecentRows {
  let visible = $state.raw<readonly string[]>([]);
  let asked = $state.raw<readonly string[]>([]);
  $effect(() => {
    const next = [...new Set([beside(), ...visible])].filter(Boolean).slice(0, MOST);
    const before = untrack(() => asked);
    if (next.join() === before.join()) return;
    const timer = setTimeout(() => (asked = next), before.length ? CALM : 0);
    return () => clearTimeout(timer);
  });
  const polled = poll(async (signal) => {
    const recent = [...asked];
    if (!recent.length || !session.may("metrics.read")) return {};
    return (await data(api.GET("/api/v1/metrics/realtime", { params: { query: { recent } }, signal }))).recent ?? {};
  }, EVERY);
  return {
    see: (ids) => {
      if (ids.join() !== untrack(() => visible).join()) visible = ids;
    },
    of: (id) => polled.data?.[id],
  };
}

/** Rates that the API has of now alone, by key: what this page has seen of the last minute, the oldest first. */
export function ratesOf(read: (signal: AbortSignal) => Promise<Record<string, number>>): { of: (key: string) => number[] | undefined } {
  let seen: { at: number; rates: Record<string, number> }[] = [];
  const polled = poll(async (signal) => {
    const now = { rates: await read(signal), at: Date.now() };
    return (seen = [...seen.filter(({ at }) => at > now.at - MINUTE), now]);
  }, EVERY);
  return { of: (key) => polled.data?.map(({ rates }) => rates[key] ?? 0) };
}

/**
 * The rates of pools (`pool:NAME`) or, with `members`, of their upstreams (`upstream:POOL/NAME`), or of a proxy's own ones (`upstream:NAME`):
 * those of the fifty busiest exits.
 */
export function exitRates(which: () => { members?: "true"; proxy_id?: string }): { of: (key: string) => number[] | undefined } {
  return ratesOf(async (signal) => {
    const { exits } = await data(api.GET("/api/v1/flow", { params: { query: { most: 50, ...which() } }, signal }));
    return Object.fromEntries(exits.map((exit) => [exit.key, exit.rate_in + exit.rate_out]));
  });
}
