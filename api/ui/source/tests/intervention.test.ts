import { beforeEach, expect, test, vi } from "vitest";
import { session } from "../src/lib/session.svelte";
import { hostOf, interventions, ruleOf, sentenceOf, type Wanted } from "../src/screens/policies/intervention";

const proxy = { id: "prx_1", name: "office" };
const wanted: Wanted = { deed: "block", host: "casino.example", account: "", proxy: null, seconds: 0, limits: { bandwidth_in: null, bandwidth_out: null, connections: null, requests_per_minute: null }, endExisting: false };
const may = vi.spyOn(session, "may");
beforeEach(() => void may.mockReturnValue(true));

test.each([
  ["https://Casino.example:8443/a?b", "casino.example"],
  ["casino.example:443", "casino.example"],
  ["http://user:pw@casino.example/", "casino.example"],
  ["[2001:db8::1]:443", "2001:db8::1"],
  ["", ""],
])("the host of %s", (target, host) => expect(hostOf(target)).toBe(host));

test("a block has no name, which the service makes, and ends at its time", () => {
  expect(ruleOf(wanted)).toEqual({ match: { destinations: ["casino.example"] }, action: { use: "deny" }, mode: "enforce" });
  const narrow = { ...wanted, account: "bob", proxy, seconds: 3600 };
  expect(ruleOf(narrow, 0).match).toEqual({ destinations: ["casino.example"], accounts: ["bob"], proxies: ["prx_1"], until: "1970-01-01T01:00:00.000Z" });
});

test("long names of limits are cut and stay different", () => {
  const names = ["a", "b"].map((end) => ruleOf({ ...wanted, deed: "limit", host: `${"x".repeat(120)}${end}.example` }).name!);
  expect(names.map((name) => name.length)).toEqual([100, 100]);
  expect(names[0]).not.toBe(names[1]);
});

test("a limit says nothing else, and its sentence has all of it", () => {
  const limit: Wanted = { ...wanted, deed: "limit", host: "", account: "bob", seconds: 86_400, limits: { ...wanted.limits, bandwidth_out: 1_000_000, connections: 5 } };
  expect(ruleOf(limit, 0)).toEqual({ name: "limit for bob", match: { accounts: ["bob"], until: "1970-01-02T00:00:00.000Z" }, action: { limits: { bandwidth_out: 1_000_000, connections: 5 } }, mode: "enforce" });
  const sentence = sentenceOf(limit, "everywhere");
  for (const part of ["to any host", "on all proxies", "for the account bob", "for a day", "1 MB/s", " 5", "last rule of the policy everywhere"]) expect(sentence).toContain(part);
  expect(sentenceOf({ ...wanted, proxy }, "")).toBe("Requests to casino.example on the proxy office for everyone are refused permanently. This creates the policy everywhere, which applies on all proxies before their own rules.");
});

test("a row offers what there is something for, and what its visitor may", () => {
  const asked = vi.fn();
  const titles = (subject: object) => interventions({ host: "casino.example", account: "bob", proxy, ...subject }, asked).map(({ title }) => title);
  expect(titles({})).toEqual(["Block casino.example…", "Limit…", "Disable bob…"]);
  expect(titles({ account: "" })).toEqual(["Block casino.example…", "Limit…"]);
  expect(titles({ host: "" })).toEqual(["Limit…", "Disable bob…"]);
  interventions({ host: "casino.example", account: "bob", proxy }, asked)[0]!.run!();
  expect(asked).toHaveBeenCalledWith({ deed: "block", host: "casino.example", account: "bob", proxy });
  may.mockImplementation((permission) => permission !== "settings.read");
  expect(titles({})).toEqual(["Disable bob…"]);
  may.mockReturnValue(false);
  expect(titles({})).toEqual([]);
});
