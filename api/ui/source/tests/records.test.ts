import { expect, test } from "vitest";
import { bare, reasonText, stepOf } from "../src/lib/reasons";
import { facetsOf } from "../src/screens/logs/facets";
import type { Entry, Values } from "../src/screens/logs/query";
import { outcomeOf } from "../src/screens/logs/outcome";
import { stepsOfRecord } from "../src/screens/policies/decision";

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
  ["http_request_denied", 407, "credentials required"],
  ["http_request_denied", 403, "refused by the upstream proxy"],
  ["reported:destination_denied", 200, "report only: target denied"],
  ["something_new", 502, "something_new"],
  ["", 200, ""],
])("%s with %i in words", (reason, status_code, text) => expect(reasonText({ reason, status_code })).toBe(text));

test.each([
  ["client_certificate_unmatched", 407, false, "sign_in"],
  ["client_certificate_missing", 0, false, "listener"],
  ["http_request_denied", 407, false, "sign_in"],
  ["http_request_denied", 403, true, "exit"],
  ["credential_destination_not_allowed", 403, false, "policy"],
  ["rule_request_limit", 429, false, "limits"],
  ["destination_unavailable", 502, false, "target"],
  ["destination_unavailable", 503, false, "exit"],
  ["destination_unavailable", 502, true, "exit"],
  ["http_response_timeout", 504, false, "target"],
  ["ended_by_operator", 200, false, undefined],
  ["something_new", 403, false, undefined],
])("%s with %i stops at the step of what it is", (reason, status_code, upstream, step) => expect(stepOf({ reason, status_code }, upstream)).toBe(step));

test("the steps of a record end where it was refused, and name the entry that decided", () => {
  const steps = stepsOfRecord(entry({ user: "bob", reason: "policy_denied", status_code: 403, proxy_id: "prx_1", rule: "policy everywhere[0] block casino.example" }));
  expect(steps.map(({ step, outcome }) => `${step} ${outcome}`)).toEqual(["listener passed", "sign_in passed", "policy denied", "exit open", "target open"]);
  expect(steps[2]).toMatchObject({ rule: "policy everywhere[0] block casino.example", href: "/ui/rules/policies/everywhere" });
  expect(steps[0]!.text).toBe("192.0.2.7");
});

test("what a rule only reported has passed, and errors are those of who made them", () => {
  const outcomes = (more: object) => stepsOfRecord(entry(more)).map(({ step, outcome }) => `${step} ${outcome}`);
  expect(outcomes({ reason: "reported:destination_denied" })).toEqual(["listener passed", "policy reported", "exit passed", "target passed"]);
  expect(outcomes({ reason: "dns_error", status_code: 502 })).toEqual(["listener passed", "policy passed", "exit passed", "target failed"]);
  expect(outcomes({ reason: "destination_unavailable", status_code: 503, parent: "up" })).toEqual(["listener passed", "policy passed", "exit failed", "target open"]);
  expect(outcomes({ reason: "account_quota_reached", status_code: 429, user: "bob" })).toEqual(["listener passed", "sign_in passed", "limits denied", "policy open", "exit open", "target open"]);
  expect(outcomes({ status_code: 404 }).at(-1)).toBe("target failed");
  expect(outcomes({ reason: "ended_by_operator" }).at(-1)).toBe("target ended");
  expect(outcomes({ reason: "http_request_denied", status_code: 407 })).toEqual(["listener passed", "sign_in denied", "policy open", "exit open", "target open"]);
  expect([bare("reported:dns_error"), bare("dns_error")]).toEqual(["dns_error", "dns_error"]);
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
  expect(found.outcome!.map(({ name, n }) => [name, n])).toEqual([["passed", 2], ["refused by the proxy", 3]]);
  expect(found.class!.map(({ value, n }) => [value, n])).toEqual([["2xx", 6], ["4xx", 2]]);
  expect(found.reason![0]!.name).toBe("denied by a policy");
  expect(found.proxy!.map(({ value }) => value)).toEqual(["prx_0", "prx_1", "prx_2", "prx_3", "prx_4", "prx_5", "prx_8"]);
  expect(found.target).toEqual([]);
});
