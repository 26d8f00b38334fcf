import { expect, test } from "vitest";
import { otherName } from "../src/screens/connections/query";
import { shownColumns } from "../src/screens/logs/columns";
import { offered } from "../src/screens/logs/query";
import { CHECKS, askedOf, checkText, detailOf, fixOf, ruleText } from "../src/screens/objects/tls-name";
import { plans } from "../src/screens/plans/value";
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
  ["tls_name_denied", "mismatch: the handshake names b.example, and a.example was requested; access.allow_destinations does not allow that name", en.tlsname["fix.refused"]],
  ["reported:tls_name_denied", "no_name: no name", en.tlsname["fix.no_name"]],
  ["tls_name_denied", "something later", ""],
  ["destination_denied", "mismatch: x", ""],
])("%s with the detail %s has what to do", (reason, detail, text) => expect(fixOf({ reason, detail })).toBe(text));

test("a record leads to a question about its name, or about none where it had none", () => {
  expect(askedOf({ tls_name: "", detail: "no_name: the handshake has no name" })).toEqual({ tls_name: "", nameless: true });
  expect(askedOf({ tls_name: "b.example", detail: "mismatch: x" })).toEqual({ tls_name: "b.example", nameless: false });
});

test("a detail is shown without its kind, and the field of the proxy as what it is", () => {
  expect([detailOf({ reason: "reported:tls_name_denied", detail: "not_tls: no TLS" }), detailOf({ reason: "dns_failed", detail: "name: no answer" })]).toEqual(["no TLS", "name: no answer"]);
  expect([ruleText("tls_name"), ruleText("access.allow_destinations[0] a.example")]).toEqual(["setting of the proxy", "access.allow_destinations[0] a.example"]);
});

test.each([
  ["a.example:443", "a.example", false],
  ["A.example.:443", "a.example", false],
  ["192.0.2.7:443", "a.example", true],
  ["[2001:db8::1]:443", "a.example", true],
  ["a.example:443", "", false],
])("a connection to %s with the name %s in its handshake", (target, tls_name, other) => expect(otherName({ target, tls_name })).toBe(other));

test.each([
  ["", "", "", false],
  ["", "tls_name_denied", "", true],
  ["", "reported:tls_name_denied", "", true],
  ["", "", "b.example", true],
  ["tls_name", "", "b.example", false],
])("the column of the name with hidden=%s reason=%s tls_name=%s", (hidden, reason, tls_name, there) => expect(shownColumns({ hidden, reason, tls_name }).includes("tls_name")).toBe(there));

test("protocols that a client offered are values of their own", () => {
  expect([offered({ alpn: "h2,http/1.1" }), offered({ alpn: "" })]).toEqual([["h2", "http/1.1"], []]);
});

test("a plan discloses unless it says otherwise", () => {
  expect(plans.blank().disclose).toBe(true);
  expect(plans.bodyOf(plans.blank(), { ...plans.blank(), disclose: false })).toEqual({ disclose: false });
});
