import { describe, expect, it } from "vitest";
import { Fleet, type Node } from "../src/lib/fleet.svelte";
import { bodyOf, blank } from "../src/screens/proxies/form/value";
import { address } from "../src/screens/proxies/columns";
import { addressLines, pendingWords, problemsOf, tokenState, type Token } from "../src/screens/nodes/node";

const node = (more: Partial<Node> = {}): Node => ({
  id: "nod_1", name: "fra1", role: "full", state: "up", tags: [], addresses: {}, certificate: null, created_at: null, proxies: 0, revision: 1, behind_seconds: 0,
  failed: [], database: { connected: true, since: null, doorbell: "heard", round_trip_ms: 1 }, pending: {}, version: "1", level: 1, started_at: null, last_seen_at: null, clock_offset: 0, settings_differ: {}, ...more,
});
const stale = (seconds: string | null) => new Response("", seconds === null ? {} : { headers: { "X-Config-Stale": seconds } });
const lacking = (...names: string[]) => ({ meta: { missing_nodes: names.map((name) => ({ node: name, reason: "no response" })) } });

describe("a node's problems", () => {
  it.each([
    [{}, []],
    [{ state: "down", database: { connected: false, since: null, doorbell: null, round_trip_ms: null } }, ["no heartbeat"]],
    [{ database: { connected: false, since: null, doorbell: null, round_trip_ms: null } }, ["cut off"]],
    [{ database: { connected: true, since: null, doorbell: "polling", round_trip_ms: 1 } }, ["no notifications"]],
    [{ failed: [{ collection: "proxies", id: "prx_1", name: "shop", revision: 2, error: "port taken", since: "2026-01-01T00:00:00Z" }] }, ["1 not applied"]],
    [{ pending: { usage_bytes: 2_000_000, usage_seconds: 61 }, settings_differ: { "auth.x": ["fra2"] } }, ["unreported 2 MB", "settings differ"]],
    [{ pending: { usage_bytes: 2_000_000, usage_seconds: 60 } }, []],
    [{ state: "joining", database: null }, []],
    [{ state: "unknown", database: null }, []],
    [{ state: "unknown", database: null, last_seen_at: "2026-01-01T00:00:00Z" }, ["as of the last heartbeat"]],
  ] as [Partial<Node>, string[]][])("%o", (more, words) => {
    expect(problemsOf(node(more))).toEqual(words);
  });
  it("are beside what it alone has", () => {
    expect(pendingWords({ usage_bytes: 1_500_000, usage_seconds: 90, sign_ins: 1, credentials: 0, audit: 2 })).toBe("1.5 MB of usage, for 1 min, 1 sign-in, 2 audit entries");
    expect(pendingWords({ usage_bytes: 0, usage_seconds: 0 })).toBe("");
  });
});

it("a token is used, over or open", () => {
  const token = (used_by: string | null, expires_at: string) => tokenState({ used_by, expires_at } as Token, Date.parse("2026-01-02T00:00:00Z"));
  expect([token("nod_1", "2026-01-01T00:00:00Z"), token(null, "2026-01-02T00:00:00Z"), token(null, "2026-01-02T00:00:01Z")]).toEqual(["used", "expired", "open"]);
  expect(addressLines({ internal: "10.0.0.1:7443", public: "192.0.2.7" })).toBe("internal=10.0.0.1:7443\npublic=192.0.2.7");
});

it("a proxy runs on all nodes, or on those that a name or a tag selects", () => {
  const with_ = (nodes: ReturnType<typeof blank>["nodes"]) => bodyOf({ ...blank(), nodes: { kind: "some", names: ["x"], tags: [] } }, { ...blank(), nodes }).nodes;
  expect(bodyOf(blank(), blank()).nodes).toBeUndefined();
  expect(with_({ kind: "all", names: ["x"], tags: [] })).toEqual({ all: true });
  expect(with_({ kind: "some", names: [], tags: ["eu"] })).toEqual({ tags: ["eu"] });
  expect(with_({ kind: "some", names: [], tags: [] })).toEqual({ names: [] }); // which the API refuses at the field
});

describe("the fleet", () => {
  it("is there with one node that has an id, and is several with two", () => {
    const fleet = new Fleet();
    fleet.nodes = [node({ id: null })];
    expect([fleet.exists, fleet.several, fleet.choices()]).toEqual([false, false, []]);
    fleet.nodes = [node()];
    expect([fleet.exists, fleet.several]).toEqual([true, false]);
    fleet.nodes = [node(), node({ id: "nod_2", name: "fra2" })];
    expect(fleet.choices()[0]).toMatchObject({ key: "node", options: [{ value: "fra1" }, { value: "fra2" }] });
  });
  it("is cut off from a response that says so until one that doesn't, since one moment", () => {
    const fleet = new Fleet();
    fleet.responded(stale("60"));
    const since = fleet.cutOffSince!;
    expect(Date.now() - since).toBeGreaterThanOrEqual(60_000);
    fleet.responded(stale("61"));
    expect(fleet.cutOffSince).toBe(since);
    fleet.responded(stale(null));
    expect(fleet.cutOffSince).toBeNull();
  });
  it("names nodes that the reads of a screen lack, each once, until they are there or the screen is left", () => {
    const fleet = new Fleet();
    fleet.read("/logs", lacking("fra2"));
    fleet.read("/logs/histogram", lacking("fra2", "fra3"));
    expect(fleet.missing.map((each) => each.node)).toEqual(["fra2", "fra3"]);
    fleet.read("/logs/histogram", { n: 1 });
    expect(fleet.missing.map((each) => each.node)).toEqual(["fra2"]);
    fleet.left();
    expect(fleet.missing).toEqual([]);
  });
});

it("a proxy at the address of each node is written as such, and with that of the node that is asked", () => {
  const proxy = { host: "{address:public}", port: 3128 };
  expect([address(proxy), address({ host: "::1", port: 1 })]).toEqual(["{address:public}:3128", "[::1]:1"]);
  const here = { ...proxy, runtime: { host: "2001:db8::1" } };
  expect(address(here)).toBe("[2001:db8::1]:3128");
});
