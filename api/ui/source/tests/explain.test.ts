import { expect, test } from "vitest";
import { entryOf, isAddress, steps, type Explanation } from "../src/screens/proxies/rules/explain";

const allowed = { decision: "allow", reason: "", rule: "", stage: "address", mode: "enforce", target: { host: "example.com", port: 443 }, addresses: [], rules: [], account: null, credential: null, assumed: [] } as unknown as Explanation;
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
