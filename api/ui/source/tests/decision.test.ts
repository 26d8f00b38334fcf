import { expect, test } from "vitest";
import { isPlain, placeOf, questionOf, stepsOf, tryUrl, type Asked, type Explanation } from "../src/screens/policies/decision";
import { entryOf } from "../src/screens/proxies/rules/order";

const allowed = { decision: "allow", reason: "", rule: "", stage: "address", mode: "enforce", target: { host: "example.com", port: 443 }, addresses: [], rules: [], account: null, credential: null, assumed: [], source: null, upstreams: null, tls_name: { check: "record", rule: "tls_name auto", port_checked: false, name: null, kind: null, detail: "" } } as unknown as Explanation;
const nothing: Asked = { proxy: "prx_1", target: "https://example.com/", client: "192.0.2.7", account: "", credential: "", method: "", tls_name: "", nameless: false, at: "", was: "" };
const named = { ...nothing, account: "alice" };
const outcomes = (more: Partial<Explanation>, asked: Asked = nothing) => stepsOf({ ...allowed, ...more }, asked).map(({ step, outcome }) => `${step} ${outcome}`);

test.each<[string, Partial<Explanation>, Asked, string[]]>([
  ["is allowed", {}, nothing, ["listener passed", "policy passed", "exit passed", "target passed"]],
  ["of an account is allowed", { assumed: ["password"] }, named, ["listener passed", "sign_in assumed", "policy passed", "exit passed", "target passed"]],
  ["is denied by its name", { decision: "deny", reason: "destination_denied", stage: "name" }, nothing, ["listener passed", "policy denied", "exit open", "target open"]],
  ["has no credentials", { decision: "deny", reason: "http_request_denied", stage: "user" }, nothing, ["listener passed", "sign_in denied", "policy open", "exit open", "target open"]],
  ["is of a disabled account", { decision: "deny", reason: "account_disabled", stage: "account", assumed: ["password"] }, named, ["listener passed", "sign_in denied", "policy open", "exit open", "target open"]],
  ["is over a quota", { decision: "deny", reason: "account_quota_reached", stage: "account", assumed: ["password"] }, named, ["listener passed", "sign_in assumed", "limits denied", "policy open", "exit open", "target open"]],
  ["does not resolve", { decision: "deny", reason: "dns_error", stage: "resolve" }, nothing, ["listener passed", "policy passed", "exit passed", "target failed"]],
  ["has no upstream", { decision: "deny", reason: "destination_unavailable", stage: "upstreams" }, nothing, ["listener passed", "policy passed", "exit failed", "target open"]],
  ["is only reported", { reason: "reported:destination_not_allowed" }, nothing, ["listener passed", "policy reported", "exit passed", "target passed"]],
  ["has a name that decides", { tls_name: { ...allowed.tls_name, check: "match", port_checked: true } }, nothing, ["listener passed", "policy assumed", "exit passed", "target passed"]],
  ["has another name", { decision: "deny", reason: "tls_name_denied", stage: "tls_name" }, nothing, ["listener passed", "policy denied", "exit open", "target open"]],
])("the steps of a request that %s", (_what, more, asked, steps) => expect(outcomes(more, asked)).toEqual(steps));

test("the step that decides has the rule, the others what is known of them", () => {
  const denied = { ...allowed, decision: "deny" as const, reason: "policy_denied", stage: "policy", rule: "policy builds[0] no ads" };
  expect(stepsOf(denied, named).map(({ text, rule }) => text || rule)).toEqual(["192.0.2.7", "alice", "policy builds[0] no ads", "", ""]);
  const upstreams = { pool: "eu", policy: "random", chosen: "paris", total: 2, usable: 2, left_out: [] } as unknown as Explanation["upstreams"];
  expect(stepsOf({ ...allowed, upstreams }, nothing).slice(2).map(({ text }) => text)).toEqual(["through paris · eu", "example.com:443"]);
});

test.each([
  ["policy builds[0] no ads", "policy", null, "/ui/rules/policies/builds"],
  ["access.deny_destinations[1] ads.example", "name", null, "/ui/proxies/prx_1/configuration"],
  ["account.allow_destinations: no entry matches", "name", "acc_1", "/ui/accounts/acc_1"],
  ["credentials: this credential has expired", "credential", "acc_1", "/ui/accounts/acc_1/credentials"],
  ["accounts: this account is disabled", "account", null, "/ui/proxies/prx_1/accounts"],
  ["10.0.0.1 is not a public address", "egress_guard", null, "/ui/settings"],
  ["a.example does not resolve", "resolve", null, null],
])("what decides by %s is changed at its screen", (rule, stage, account, place) => expect(placeOf({ rule, stage, account }, "prx_1")).toBe(place));

test("a request is tried at an address that has all of it, and asked with what there is", () => {
  expect(tryUrl({ account: "alice", target: "a.example:443", client: "", nameless: true })).toBe("/ui/rules/try?account=alice&target=a.example%3A443&nameless=1");
  expect(questionOf({ ...named, client: "", at: "2030-01-31T22:30:00.000Z" })).toEqual({ target: "https://example.com/", client_ip: "127.0.0.1", user: "alice", at: "2030-01-31T22:30:00.000Z" });
  expect(questionOf({ ...nothing, tls_name: "a.example", nameless: true })).toMatchObject({ tls_name: "" });
  expect([isPlain(" HTTP://a/"), isPlain("https://a/"), isPlain("a:80")]).toEqual([true, false, false]);
});

test("a rule of the proxy names its entry", () => {
  expect(entryOf("access.deny_destinations[12] *.example.com:443")).toEqual({ list: "deny_destinations", index: 12 });
  expect([entryOf("account.deny_destinations[0] x"), entryOf("access.mode[0]"), entryOf("the egress guard")]).toEqual([null, null, null]);
});
