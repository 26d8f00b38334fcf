import { describe, expect, it } from "vitest";
import { differences } from "../src/lib/differences";
import { freshness, lists, type ListValue } from "../src/screens/lists/list";
import { appliedBy } from "../src/screens/policies/decision";
import { readUpstreams } from "../src/screens/proxies/form/value";
import { pools } from "../src/screens/pools/pool";
import { upstreamState, wordOf } from "../src/screens/pools/state";
import { blankRule, moved, placeOf, policies, ruleBody, ruleValue } from "../src/screens/policies/policy";
import { actionOf, limitsOf, summaryOf } from "../src/screens/policies/summary";

describe("a rule in its form", () => {
  const stored = {
    name: "docs", mode: "report" as const,
    match: { accounts: ["tag:ci"], destinations: ["*.example", "list:a"], proxies: ["the office", "tag:eu"], until: "2100-01-31T12:00:00.000Z", methods: ["GET"], params: { country: "de" } },
    action: { use: "direct", headers: { set: { "X-Team": "a: b" }, remove: ["Cookie"] }, egress: ["192.0.2.1"], limits: { connections: 5 }, later: { x: 1 } },
  };

  it("comes back as it was, with fields that the form does not know", () => {
    expect(ruleBody(ruleValue(stored as never))).toEqual(stored);
  });
  it("is about tunnels or says nothing of them", () => {
    const tunnels = { name: "t", mode: "enforce" as const, match: { tunnel: true }, action: { use: "deny" } };
    expect(ruleBody(ruleValue(tunnels as never))).toEqual(tunnels);
    expect(ruleBody({ ...ruleValue(tunnels as never), tunnel: false }).match).toEqual({});
  });
  it("says what becomes of the name in the handshake, or leaves it to the proxy", () => {
    const strict = { name: "t", mode: "enforce" as const, match: {}, action: { use: "direct", tls_name: "match" } };
    expect(ruleBody(ruleValue(strict as never))).toEqual(strict);
    expect(ruleBody({ ...ruleValue(strict as never), tls_name: "" }).action).toEqual({ use: "direct" });
    expect(ruleBody({ ...ruleValue(strict as never), use: "deny" }).action).toEqual({ use: "deny" });
    expect(ruleValue({ ...strict, action: { use: "direct", tls_name: null } } as never).tls_name).toBe("");
  });
  it("leaves out what is empty, and what an action does not have", () => {
    const rule = { ...blankRule("one"), reason: "no", set: "X-A: 1" };
    expect(ruleBody(rule)).toEqual({ name: "one", match: {}, action: { use: "deny", reason: "no" }, mode: "enforce" });
    expect(ruleBody({ ...rule, use: "" })).toEqual({ name: "one", match: {}, action: { headers: { set: { "X-A": "1" } } }, mode: "enforce" });
  });
  it("is named in a few words", () => {
    expect(summaryOf(ruleValue({ ...stored, match: { ...stored.match, until: null } } as never))).toBe("tag:ci · *.example, list:a · GET · the office, tag:eu · country=de");
    expect([stored.match.until, "2020-01-31T12:00:00.000Z"].map((until) => summaryOf({ ...blankRule("x"), until }).replace(/(until|ended).*/, "$1"))).toEqual(["every request · until", "every request · ended"]);
    expect(summaryOf({ ...blankRule("x"), destinations: ["a", "b", "c", "d", "e"] })).toBe("a, b, c +2");
    expect(summaryOf({ ...blankRule("x"), methods: ["*"], destinations: ["a"] })).toBe("a · plain HTTP");
    expect(summaryOf({ ...blankRule("x"), tunnel: true, destinations: [":443"] })).toBe(":443 · tunnels");
    expect([limitsOf(ruleValue(stored as never)), limitsOf({ use: "", limits: { ...blankRule("x").limits, bandwidth_out: 1_000_000, connections: 1 } })]).toEqual([["5 connections"], ["1 MB/s to clients", "1 connection"]]);
    expect([summaryOf(blankRule("x")), actionOf({ use: "deny" }).word]).toEqual(["every request", "deny"]);
  });
});

describe("the order of rules", () => {
  it("changes by one that is moved", () => {
    expect([moved(["a", "b", "c"], 0, 2), moved(["a", "b", "c"], 2, 0), moved(["a", "b", "c"], 1, 1)].map((each) => each.join(""))).toEqual(["bca", "cab", "abc"]);
  });
  it("is shown by the names, so that no rule seems to be another, and one that is moved is one change", () => {
    const before = { name: "p", description: "", rules: ["a", "b", "c"].map(blankRule) };
    const after = { ...before, rules: moved(before.rules, 1, 0) };
    expect(differences(policies.shown?.(before), policies.shown?.(after))).toEqual([{ path: "rules[b].place", before: 2, after: 1 }]);
    expect(differences(before, after)).toHaveLength(1);
    const renamed = { ...before, rules: before.rules.map((rule) => (rule.name === "c" ? { ...rule, name: "d" } : rule)) };
    expect(differences(before, renamed)).toHaveLength(1);
    expect(differences(policies.shown?.(before), policies.shown?.(renamed))).toEqual([{ path: "rules[d].name", before: "c", after: "d" }]);
  });
  it("follows the pointer by the middles of the others", () => {
    const middles = [10, 30, 50, 70];
    expect([0, 20, 40, 60, 99].map((y) => placeOf(y, 1, middles))).toEqual([0, 1, 1, 2, 3]);
    expect([0, 20, 40, 60, 99].map((y) => placeOf(y, 0, middles))).toEqual([0, 0, 1, 2, 3]);
  });
});

describe("rules of an explanation", () => {
  const rule = (policy: string, matches: "yes" | "no" | "unknown", use: string | null, mode: "enforce" | "report" = "enforce") => ({ policy, index: 0, name: policy + matches + use, matches, why: "", use, mode });
  const said = { decision: "allow" as const, stage: "address" };
  const names = (rules: ReturnType<typeof rule>[], more: object = {}) => [...appliedBy({ ...said, rules, ...more })].map((each) => each.name);

  it("apply once in each policy, until one decides", () => {
    expect(names([rule("a", "no", "deny"), rule("a", "yes", "deny", "report"), rule("a", "yes", null), rule("a", "yes", "deny"), rule("b", "yes", "direct"), rule("c", "yes", "deny")])).toEqual(["ayesnull", "byesdirect"]);
    expect(names([rule("a", "unknown", "deny"), rule("a", "yes", "direct")])).toEqual([]);
    expect(names([rule("a", "yes", "deny")], { decision: "deny", stage: "client" })).toEqual([]);
  });
});

describe("a list in its form", () => {
  const before: ListValue = { ...lists.blank(), name: "ads", entries: "a.example" };

  it("sends its entries, or its source, whichever is chosen", () => {
    expect(lists.bodyOf(lists.blank(), { ...before, entries: " a.example \n\nb.example" })).toEqual({ name: "ads", description: "", kind: "domains", entries: ["a.example", "b.example"] });
    const after: ListValue = { ...before, from: "url", source: { ...before.source, url: "https://a.example/" } };
    const source = { url: "https://a.example/", format: "plain", interval: 86400, max_bytes: 67108864 };
    expect(lists.bodyOf(before, after)).toEqual({ source });
    expect(lists.bodyOf(after, { ...after, source: { ...after.source, interval: 60 } })).toEqual({ source: { interval: 60 } });
    expect(lists.bodyOf(after, before)).toEqual({ entries: ["a.example"] });
    const places: ListValue = { ...lists.blank(), name: "places", kind: "geo", from: "file", source: { ...before.source, file: "/srv/a.mmdb", interval: null } };
    expect(lists.bodyOf(lists.blank(), places)).toEqual({ name: "places", description: "", kind: "geo", source: { file: "/srv/a.mmdb", max_bytes: 67108864 } });
    expect(lists.bodyOf(places, { ...places, from: "url", source: { ...places.source, url: "https://a.example/" } })).toEqual({ source: { url: "https://a.example/", max_bytes: 67108864 } });
    expect(lists.bodyOf(before, { ...before, description: "x" })).toEqual({ description: "x" });
  });
  it("is current, waits for its first fetch, or keeps what it had", () => {
    const status = { entries: 0, fetched_at: null, next_at: null, last_error: null, skipped: 0, skipped_examples: [] };
    const source = before.source as never;
    expect([{ source: null, status }, { source, status }, { source, status: { ...status, last_error: "404" } }, { source, status: { ...status, fetched_at: "2026-01-01T00:00:00Z" } }].map(freshness)).toEqual(["own", "waiting", "failed", "current"]);
  });
});

describe("a pool in its form", () => {
  const stored = {
    ...pools.blank(), id: "pool_1", name: "paris", source: null, upstream_count: 1, created_at: "", updated_at: "",
    upstreams: [{ name: "one", protocol: "http", host: "a.example", port: 80, weight: 1, auth: { username: "u" }, tls: null, proxy_protocol: null, labels: { country: "fr", city: "paris" } }],
    retry: { attempts: 5, connect: true, statuses: [407] }, cooldown: { connect: [1, 60], "407": [60, 600], "429": [30, 300], "5xx": [5, 60] },
  };
  const before = pools.valueOf(stored as never);

  it("sends what is different, whole; passwords only where they were typed", () => {
    expect(before.upstreams[0]!.labels).toBe("country=fr, city=paris");
    expect(pools.bodyOf(before, before)).toEqual({});
    const after = { ...before, policy: "latency" as const, upstreams: [{ ...before.upstreams[0]!, labels: "country=de,x" }], cooldown: { ...before.cooldown, "429": [60, null] as [number, null] } };
    const { "429": _, ...others } = stored.cooldown;
    expect(pools.bodyOf(before, after)).toEqual({ policy: "latency", cooldown: others, upstreams: [{ protocol: "http", host: "a.example", port: 80, weight: 1, name: "one", auth: { username: "u" }, labels: { country: "de", x: "" } }] });
    expect(pools.bodyOf(before, { ...before, retry: { ...before.retry, attempts: null, statuses: ["503", "x"] } })).toEqual({ retry: { connect: true, statuses: [503, "x"] } });
  });
  it("has its upstreams or a source, and never sends what was fetched as its own", () => {
    const source = { url: "https://p.example/exits", format: "csv", protocol: "http", interval: 60, max_bytes: 1000 };
    const fetched = pools.valueOf({ ...stored, source } as never);
    expect(fetched.upstreams).toEqual([]);
    expect(pools.bodyOf(fetched, { ...fetched, policy: "latency" })).toEqual({ policy: "latency" });
    expect(pools.bodyOf(fetched, { ...fetched, source: { ...fetched.source, interval: 90, max_bytes: null } })).toEqual({ source: { url: source.url, format: "csv", protocol: "http", interval: 90 } });
    expect(pools.bodyOf(before, { ...before, from: "url", source: fetched.source })).toEqual({ source });
    expect(pools.bodyOf(fetched, { ...fetched, from: "upstreams" })).toEqual({ upstreams: [] });
  });
  it("reads pasted lines with labels and a name, which upstreams of a proxy have not", () => {
    const lines = "a.example:1:u:p country=de city=berlin #de1\nhttp://b.example:2\n";
    const { read, unread } = readUpstreams(lines, "socks5", true);
    expect(read.map(({ protocol, host, password, labels, name }) => [protocol, host, password, labels, name])).toEqual([["socks5", "a.example", "p", "country=de, city=berlin", "de1"], ["http", "b.example", "", "", ""]]);
    expect(unread).toEqual([]);
    expect(readUpstreams(lines, "socks5", false).unread).toEqual([lines.split("\n")[0]]);
  });
  it("is usable as far as its upstreams are", () => {
    const status = { state: "degraded", up: 1, down: 1, unknown: 0, cooling_down: 1, banned: 0, usable: 1, used: true, checked: true };
    const words = [status, { ...status, unknown: 2, used: null }, { ...status, up: 0, down: 0, unknown: 2, usable: 0, used: false }].map((each) => wordOf({ upstream_count: 2, status: each } as never));
    expect(words).toEqual(["1 of 2", "1 of 2, 2 unknown", "0 of 2, 2 unknown, not in use"]);
    const one = { name: "one", state: "up" as const, since: null, latency: 1, failures: 0, cooldown: null, cooldown_until: null, banned_until: null, last_error: null };
    const later = new Date(2000).toISOString();
    expect([one, { ...one, cooldown_until: later }, { ...one, cooldown_until: later, banned_until: later }].map((each) => upstreamState(each, 1000))).toEqual(["up", "cooling", "banned"]);
    expect(upstreamState({ ...one, banned_until: later }, 3000)).toBe("up");
    expect(upstreamState({ ...one, state: "down", cooldown_until: later }, 1000)).toBe("down");
  });
});
