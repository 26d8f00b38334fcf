import { expect, test } from "vitest";
import { facetsOf } from "../src/screens/logs/facets";
import type { Entry, Values } from "../src/screens/logs/query";
import { outcomeOf, reasonText, stageOf, stepsOf } from "../src/screens/logs/reasons";

const blank = { reason: "", status_code: 200, level: "info", user: "", client_ip: "192.0.2.7", credential: "", country: "", asn: "", parent: "", source_address: "", tls_name: "", rule: "", detail: "" };
const entry = (more: object) => ({ ...blank, ...more }) as Entry;

test.each([
  [{}, "passed"],
  [{ reason: "reported:destination_denied" }, "passed"],
  [{ reason: "ended_by_operator" }, "passed"],
  [{ reason: "policy_denied", status_code: 403 }, "refused"],
  [{ reason: "tls_name_denied", level: "warning" }, "refused"],
  [{ reason: "dns_error", status_code: 502, level: "warning" }, "failed"],
  [{ status_code: 404 }, "origin_error"],
  [{ status_code: 500, level: "warning", reason: "reported:destination_denied" }, "origin_error"],
])("%j has become %s", (more, outcome) => expect(outcomeOf(entry(more))).toBe(outcome));

test.each([
  ["policy_denied", 403, "denied by a policy"],
  ["http_request_denied", 407, "credentials wanted"],
  ["http_request_denied", 403, "refused by the upstream proxy"],
  ["reported:destination_denied", 200, "only reported: target denied"],
  ["something_new", 502, "something_new"],
  ["", 200, ""],
])("%s with %i in words", (reason, status_code, text) => expect(reasonText({ reason, status_code })).toBe(text));

test.each([
  ["client_certificate_unmatched", "account"],
  ["client_certificate_missing", "client"],
  ["destination_not_allowed", "rules"],
  ["destination_ip_prohibited", "guard"],
  ["destination_ip_unroutable", "way"],
  ["credential_destination_not_allowed", "account"],
  ["rule_request_limit", "rules"],
  ["no_upstream_matches", "way"],
  ["connection_limit_reached", "client"],
  ["connection_terminated", "response"],
  ["http_response_timeout", "response"],
])("%s stops at the step %s", (reason, stage) => expect(stageOf({ reason, status_code: 502 })).toBe(stage));

test("the steps of a record end where it was refused, and name the entry that decided", () => {
  const steps = stepsOf(entry({ user: "bob", reason: "policy_denied", status_code: 403, rule: "policy everywhere: block casino.example" }));
  expect(steps.map(({ stage, outcome }) => `${stage} ${outcome}`)).toEqual(["client passed", "account passed", "rules denied", "guard open", "way open", "response open"]);
  expect(steps[2]!.rule).toBe("policy everywhere: block casino.example");
  expect(steps[0]!.text).toBe("192.0.2.7");
});

test("what a rule only reported has passed, and errors are those of who made them", () => {
  const outcomes = (more: object) => stepsOf(entry(more)).map(({ stage, outcome }) => `${stage} ${outcome}`);
  expect(outcomes({ reason: "reported:destination_denied" })).toEqual(["client passed", "rules reported", "guard passed", "way passed", "response passed"]);
  expect(outcomes({ reason: "dns_error", status_code: 502, parent: "up" })).toEqual(["client passed", "rules passed", "guard passed", "way failed", "response open"]);
  expect(outcomes({ status_code: 404 }).at(-1)).toBe("response failed");
  expect(outcomes({ reason: "ended_by_operator" }).at(-1)).toBe("response ended");
  expect(outcomes({ reason: "http_request_denied", status_code: 407 })).toEqual(["client passed", "account denied", "rules open", "guard open", "way open", "response open"]);
});

test("facets are in words and in their order, with classes of statuses; what is chosen stays among them", () => {
  const value = (value: string, records: number, name = value) => ({ value, name, records, bytes_in: 0, bytes_out: 0 });
  const none = { outcome: "", class: "", reason: "", proxy: "", user: "", target: "" } as Pick<Values, "outcome" | "class" | "reason" | "proxy" | "user" | "target">;
  const counted = [
    { field: "outcome", values: [value("refused", 3), value("passed", 2)] },
    { field: "status_code", values: [value("200", 5), value("403", 2), value("204", 1)] },
    { field: "reason", values: [value("policy_denied", 3)] },
    { field: "proxy_id", values: Array.from({ length: 9 }, (_, at) => value(`prx_${at}`, 9 - at, `proxy ${at}`)) },
  ];
  const found = Object.fromEntries(facetsOf(counted, { ...none, proxy: "prx_8" }).map(({ key, rows }) => [key, rows]));
  expect(found.outcome!.map(({ name, n }) => [name, n])).toEqual([["passed", 2], ["refused by us", 3]]);
  expect(found.class!.map(({ value, n }) => [value, n])).toEqual([["2xx", 6], ["4xx", 2]]);
  expect(found.reason![0]!.name).toBe("denied by a policy");
  expect(found.proxy!.map(({ value }) => value)).toEqual(["prx_0", "prx_1", "prx_2", "prx_3", "prx_4", "prx_5", "prx_8"]);
  expect(found.target).toEqual([]);
});
