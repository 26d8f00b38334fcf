import { expect, test } from "vitest";
import { kindOf, offered } from "../src/screens/logs/query";
import { CHECKS, checkText, fixOf } from "../src/screens/objects/tls-name";
import * as plan from "../src/screens/plans/value";
import { blank, bodyOf } from "../src/screens/proxies/form/value";
import { en } from "../src/texts/en";

test("a proxy has the check and its ports as numbers; what can't be one is left to the API", () => {
  const changed = (more: object) => bodyOf(blank(), { ...blank(), ...more });
  expect(changed({})).toEqual({});
  expect(changed({ tls_name: "match", tls_ports: ["443", "8443"] })).toEqual({ tls_name: "match", tls_ports: [443, 8443] });
  expect(changed({ tls_ports: [] })).toEqual({ tls_ports: [] });
  expect(changed({ tls_ports: ["443", "https"] })).toEqual({ tls_ports: [443, "https"] });
});

test("the check of a proxy in a line", () => {
  expect(checkText({ tls_name: "auto", tls_ports: [443, 8443] })).toBe("automatic · ports 443, 8443");
  expect(checkText({ tls_name: "match", tls_ports: [] })).toBe("must be the host of the request · at no port");
});

test("each check has a word and a sentence", () => {
  for (const check of CHECKS) expect([en.tlsname[check], en.tlsname[`${check}.text`]].every(Boolean)).toBe(true);
});

test.each([
  ["tls_name_denied", "mismatch: the client named b.example, not a.example", en.tlsname["fix.mismatch"]],
  ["reported:tls_name_denied", "no_name: no name", en.tlsname["fix.no_name"]],
  ["tls_name_denied", "something later", ""],
  ["destination_denied", "mismatch: x", ""],
])("%s with the detail %s has what to do", (reason, detail, text) => expect(fixOf({ reason, detail })).toBe(text));

test("protocols that a client offered are values of their own", () => {
  expect([offered({ alpn: "h2,http/1.1" }), offered({ alpn: "" })]).toEqual([["h2", "http/1.1"], []]);
});

test("a plan discloses unless it says otherwise", () => {
  expect(plan.blank().disclose).toBe(true);
  expect(plan.bodyOf(plan.blank(), { ...plan.blank(), disclose: false })).toEqual({ disclose: false });
});

test("a tunnel that was announced and then refused does not look as if it had succeeded", () => {
  expect([[200, "info"], [200, "warning"], [403, "info"], [502, "warning"]].map(([status_code, level]) => kindOf({ status_code, level } as never))).toEqual(["good", "warn", "warn", "bad"]);
});
