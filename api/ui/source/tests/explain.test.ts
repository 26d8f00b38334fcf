import { expect, test } from "vitest";
import { entryOf, isAddress, steps, type Explanation } from "../src/screens/proxies/rules/explain";

const allowed = { decision: "allow", reason: "", rule: "", stage: "address", mode: "enforce", target: { host: "example.com", port: 443 }, addresses: [], rules: [], account: null, credential: null, assumed: [], tls_name: { check: "record", rule: "tls_name auto", port_checked: false, name: null, kind: null, detail: "" } } as unknown as Explanation;
const open = { auth: { enabled: false, username: null }, upstreams: [] };
const closed = { auth: { enabled: true, username: "alice" }, upstreams: [] };
const outcomes = (found: Explanation, proxy: Parameters<typeof steps>[1]) => steps(found, proxy).map(({ stage, outcome }) => `${stage} ${outcome}`);

test("an allowed request has passed each stage that there is for it", () => {
  expect(outcomes(allowed, open)).toEqual(["client passed", "name passed", "resolve passed", "egress_guard passed", "address passed"]);
  expect(outcomes({ ...allowed, account: "acc_1", target: { host: "::1", port: 80 } }, closed)).toEqual(["client passed", "user passed", "account passed", "name passed", "egress_guard passed", "address passed"]);
});

test("what comes behind the stage that denies is not reached", () => {
  const denied: Explanation = { ...allowed, decision: "deny", reason: "destination_denied", rule: "access.deny_destinations[1] ads.example", stage: "name" };
  expect(outcomes(denied, closed)).toEqual(["client passed", "user passed", "name denied", "resolve open", "egress_guard open", "address open"]);
  expect(steps(denied, closed).map((step) => step.rule)).toEqual(["", "", denied.rule, "", "", ""]);
});

test("a rule that is only reported lets the request pass", () => {
  const reported = { ...allowed, reason: "reported:destination_not_allowed", rule: "access.allow_destinations: no entry matches" };
  expect(outcomes(reported, open).slice(-2)).toEqual(["egress_guard passed", "address reported"]);
});

test("an upstream resolves names itself", () => {
  const upstreams = [{ name: "one", protocol: "http" as const, host: "up.example", port: 80, weight: 1 }];
  expect(steps({ ...allowed, stage: "name" }, { ...open, upstreams }).map((step) => step.stage)).toEqual(["client", "name"]);
});

test("a rule names its entry, an address is no name", () => {
  expect(entryOf("access.deny_destinations[12] *.example.com:443")).toEqual({ list: "deny_destinations", index: 12 });
  expect([entryOf("account.deny_destinations[0] x"), entryOf("access.mode[0]"), entryOf("the egress guard")]).toEqual([null, null, null]);
  expect(["10.0.0.1", "::1", "10.example", "1.2.3.4.example"].map(isAddress)).toEqual([true, true, false, false]);
});

test("policies are a stage where there are rules of them", () => {
  const rules = [{ policy: "builds", index: 0, name: "no ads", matches: "yes" as const, why: "all of it matches", use: "deny", mode: "enforce" as const }];
  const denied: Explanation = { ...allowed, decision: "deny", reason: "policy_denied", rule: "policy builds[0] no ads", stage: "policy", rules };
  expect(outcomes(denied, open).slice(0, 3)).toEqual(["client passed", "policy denied", "name open"]);
});

test("a password that only the client knows is assumed, unless the request is refused before", () => {
  const named: Explanation = { ...allowed, account: "acc_1", assumed: ["password"] };
  expect(outcomes(named, closed).slice(0, 3)).toEqual(["client passed", "user assumed", "account passed"]);
  expect(outcomes({ ...named, decision: "deny", stage: "account" }, closed).slice(0, 3)).toEqual(["client passed", "user assumed", "account denied"]);
  expect(outcomes({ ...named, decision: "deny", stage: "user", assumed: [] }, closed).slice(0, 2)).toEqual(["client passed", "user denied"]);
});

test("the name in the handshake is the last stage where it is read; what only the client knows is assumed", () => {
  const last = (tls_name: Partial<Explanation["tls_name"]>, more: Partial<Explanation> = {}) => steps({ ...allowed, ...more, tls_name: { ...allowed.tls_name, port_checked: true, ...tls_name } }, open).at(-1);
  const rule = "access.allow_destinations[0] *.example.com";
  expect(last({ check: "match", rule })).toEqual({ stage: "tls_name", outcome: "assumed", rule });
  expect(last({ check: "allowed", rule, name: "cdn.example.com", kind: "match" })).toEqual({ stage: "tls_name", outcome: "passed", rule });
  expect(last({ check: "record", rule: "tls_name auto" })).toEqual({ stage: "tls_name", outcome: "passed", rule: "tls_name auto" });
  const wrong = { check: "match", rule, name: "evil.example", kind: "mismatch" } as const;
  expect(last(wrong, { decision: "deny", reason: "tls_name_denied", rule, stage: "tls_name" })?.outcome).toBe("denied");
  expect(last(wrong, { reason: "reported:tls_name_denied", rule, stage: "tls_name" })?.outcome).toBe("reported");
  expect(last({ check: "match", rule }, { decision: "deny", stage: "name" })?.outcome).toBe("open");
  expect([last({ check: "off" })?.stage, last({ check: "match", port_checked: false })?.stage]).toEqual(["address", "address"]);
});
