import { expect, test } from "vitest";
import { STEPS } from "../src/lib/reasons";
import { namesFor, pairOf } from "../src/screens/proxies/form/certificate";
import { PARTS, partsOf } from "../src/screens/proxies/form/parts";
import { blank, chosenParts, portBehind, type Exit, type Who } from "../src/screens/proxies/form/value";
import { ratesOf, withSample, type Sample } from "../src/screens/proxies/rates";
import { ORDER, partOf } from "../src/screens/proxies/rules/order";
import { movedTo } from "../src/screens/proxies/tabs";
import { refusedAt, sumOf } from "../src/screens/proxies/way";

test("what is refused is counted at its step, most often first; what is only reported is not", () => {
  const found = refusedAt([["policy_denied", 2], ["destination_denied", 7], ["client_denied", 1], ["reported:destination_denied", 9], ["ended_by_operator", 4], ["destination_unavailable", 3], ["", 50]], true);
  expect(found.policy).toEqual([{ reason: "destination_denied", n: 7 }, { reason: "policy_denied", n: 2 }]);
  expect(STEPS.map((step) => sumOf(found[step]))).toEqual([1, 0, 0, 9, 0, 3]);
  expect(sumOf(refusedAt([["destination_unavailable", 3]], false).exit)).toBe(3);
});

test("rates are taken over ten seconds, and begin anew with the counters", () => {
  const at = (seconds: number, n: number): Sample => ({ at: seconds * 1000, bytes_in: n, bytes_out: n * 10, total_requests: n });
  const read = (...samples: Sample[]) => ratesOf(samples.reduce<Sample[]>((all, next) => withSample(all, next), []));
  expect(read(at(0, 0))).toBeNull();
  expect(read(at(0, 0), at(2, 4))).toEqual({ in: 2, out: 20, requests: 2 });
  expect(read(at(0, 0), at(20, 100), at(22, 104))).toEqual({ in: 2, out: 20, requests: 2 });
  expect(read(at(0, 100), at(2, 4))).toBeNull();
});

test.each([
  [[], "3128"],
  [[{ port: 3128 }, { port: 1080 }], "3129"],
  [[{ port: "20000-20999" }, { port: 20500 }], "21000"],
  [[{ port: 65535 }], ""],
])("the port behind %j is %s", (proxies, port) => expect(portBehind(proxies)).toBe(port));

test.each<[Who, Exit, object]>([
  ["machine", "direct", { enabled: false, username: "", networks: [], pool: "", upstreams: 0 }],
  ["networks", "pool", { enabled: false, username: "", networks: ["10.0.0.0/8"], pool: "eu", upstreams: 0 }],
  ["accounts", "upstream", { enabled: true, username: "", networks: [], pool: "", upstreams: 1 }],
  ["password", "direct", { enabled: true, username: "all", networks: [], pool: "", upstreams: 0 }],
])("for %s and %s nothing is sent that was typed for another choice", (who, exit, expected) => {
  const typed = { ...blank(), pool: "eu", upstreams: [{}] as never, auth: { ...blank().auth, username: "all", password: "secret" }, access: { ...blank().access, allow_clients: ["10.0.0.0/8"] } };
  const { auth, access, pool, upstreams } = chosenParts(typed, who, exit);
  expect({ enabled: auth.enabled, username: auth.username, networks: access.allow_clients, pool, upstreams: upstreams.length }).toEqual(expected);
});

test("a pair is found in files of any order, and of one; a certificate is for the host of the page, too", () => {
  const pem = (kind: string, text: string) => `-----BEGIN ${kind}-----\n${text}\n-----END ${kind}-----`;
  const [leaf, chain, key] = [pem("CERTIFICATE", "AAA"), pem("CERTIFICATE", "BBB"), pem("PRIVATE KEY", "CCC")];
  const pair = { certificate: `${leaf}\n${chain}`, private_key: key };
  expect(pairOf([key, `${leaf}\r\n${chain}`])).toEqual(pair);
  expect(pairOf([`of a tool\n${leaf}\n${key}\n${chain}`])).toEqual(pair);
  expect(pairOf([leaf])).toEqual({ certificate: leaf, private_key: "" });
  expect([namesFor("0.0.0.0", "proxy.example"), namesFor("10.0.0.1", "localhost"), namesFor("::", "::1")]).toEqual([["proxy.example", "localhost"], ["localhost", "10.0.0.1"], ["::1", "localhost"]]);
});

test("addresses of tabs of before lead to where their content is", () => {
  const query = new URLSearchParams("range=24h");
  expect(["charts", "overview", "connections", "rules", undefined].map((tab) => movedTo("prx_1", tab, query))).toEqual(["/proxies/prx_1?range=24h", "/proxies/prx_1?range=24h", "/connections?proxy=prx_1&range=24h", null, null]);
});

test.each([
  ["client", "access.deny_clients[0] 10.0.0.0/8", "clients"],
  ["credential", "credentials: this credential has expired", "sign_in"],
  ["name", "account.allow_destinations: no entry matches", "account"],
  ["address", "access.deny_destinations[1] ads.example", "destinations"],
  ["policy", "policy office[0] no-ads", null],
])("what the stage %s decides by %s is in %s", (stage, rule, part) => {
  expect(partOf({ stage, rule })).toBe(part);
  if (part) expect(ORDER).toContain(part);
});

test("the contents of the form say where something is changed or wrong; TLS is there for protocols that have it", () => {
  const [original, value] = [blank(), { ...blank(), protocol: "https" as const, tls_ports: [], sleep_after: 60, limits: { ...blank().limits, bandwidth_in: 1 } }];
  const found = partsOf({ original, value, errors: { "access.deny_clients[0]": "?", dns: "?" } });
  expect(found.filter(({ changed, wrong }) => changed || wrong)).toEqual([
    { key: "general", changed: 1, wrong: 0 }, { key: "access", changed: 1, wrong: 1 }, { key: "limits", changed: 1, wrong: 0 }, { key: "more", changed: 1, wrong: 1 },
  ]);
  expect(Object.keys(PARTS).filter((key) => !partsOf({ original, value: original, errors: {} }).some((each) => each.key === key))).toEqual(["tls"]);
});
