import { expect, test } from "vitest";
import type { Schemas } from "../src/api/client";
import { askingFirst } from "../src/screens/accounts/credentials";
import { blank, bodyOf } from "../src/screens/proxies/accounts/value";
import { listenerAt } from "../src/screens/proxies/form/value";
import { addressIn, asksForSecret, kindsOf, withSecret } from "../src/screens/proxies/snippets";
import { upstreamsOf } from "../src/screens/proxies/upstreams";

const configured = (name: string) => ({ name, protocol: "socks5" as const, host: "::1", port: 1080, weight: 2 });
const live = (name: string, state: "up" | "down"): Schemas["UpstreamStateView"] => ({ name, state, since: "2026-01-01T00:00:00Z", active_connections: 0, total_connections: 0, failures: 0, bytes_in: 0, bytes_out: 0, latency_ms: 1, last_error: null });

test("upstreams that are down come first, those without a state last", () => {
  const runtime = { upstreams: [live("a", "up"), live("b", "down")] } as Schemas["RuntimeView"];
  const found = upstreamsOf({ upstreams: ["c", "a", "b"].map(configured), runtime });
  expect(found.map(({ name, live: state }) => [name, state?.state])).toEqual([["b", "down"], ["a", "up"], ["c", undefined]]);
  expect(found[0]!.url).toBe("socks5://[::1]:1080");
  expect(upstreamsOf({ upstreams: [configured("c")], runtime: null })[0]!.live).toBeNull();
});

test("clients that do not speak the protocol have no lines", () => {
  const texts = { url: "u", curl: "c", socks: null, environment: "e", python: "y", git: "g", pip: "p", apt: null, docker: null, chromium: "x", firefox: "f" };
  expect(kindsOf(texts)).toEqual(["curl", "environment", "python", "git", "pip", "chromium", "firefox", "url"]);
});

test("the body of an account has what is different; its name only while it is new", () => {
  const typed = { ...blank(), username: "alice", password: "secret", limits: { ...blank().limits, connections: 5 }, quota: { bytes: 1024, period: "month" as const } };
  expect(bodyOf(blank(), typed)).toEqual({ username: "alice", password: "secret", limits: { connections: 5 }, quota: { bytes: 1024 } });
  const stored = { ...typed, password: "" };
  expect(bodyOf(stored, { ...stored, enabled: false, limits: { ...stored.limits, connections: null } })).toEqual({ enabled: false, limits: { connections: 0 } });
});

test("lines get the secret where its placeholder is, and what clients connect to is in them", () => {
  expect(withSecret("curl --proxy http://PASSWORD:PASSWORD@h:1", "pfc_/")).toBe("curl --proxy http://PASSWORD:pfc_%2F@h:1");
  expect(withSecret("socks4a://CREDENTIAL:@h:1", "pfc_1")).toBe("socks4a://pfc_1:@h:1");
  expect(["http://USER:PASSWORD@proxy.example:2000", "socks5h://[::1]:1", "socks4a://CREDENTIAL:@h:1"].map((url) => addressIn({ url }))).toEqual(["proxy.example:2000", "[::1]:1", "h:1"]);
});

test.each([
  ["127.0.0.1", "3128", "office"],
  ["0.0.0.0", " 3128 ", "office"],
  ["127.0.0.2", "3128", null],
  ["127.0.0.2", "8080", "all"],
  ["127.0.0.1", "20500", "range"],
  ["127.0.0.1", "19000-20000", "range"],
  ["127.0.0.1", "19000-19999", null],
  ["127.0.0.1", "", null],
])("who listens at %s port %s", (host, port, name) => {
  const proxies = [{ name: "office", host: "127.0.0.1", port: 3128 }, { name: "all", host: "::", port: 8080 }, { name: "range", host: "127.0.0.1", port: "20000-20999" }];
  expect(listenerAt(proxies, host, port)).toBe(name);
});

test("lines of a credential are for a proxy that asks for it, where there is one", () => {
  const listed = [["a", false], ["b", true], ["c", false], ["d", true]] as const;
  expect(askingFirst(listed.map(([name, auth_enabled]) => ({ name, auth_enabled }))).map(({ name }) => name)).toEqual(["b", "d", "a", "c"]);
});

test.each([
  ["http://USER:PASSWORD@127.0.0.1:1", true],
  ["socks4://CREDENTIAL:@127.0.0.1:1", true],
  ["http://127.0.0.1:1", false],
])("%s asks for a secret: %s", (url, asks) => expect(asksForSecret({ url })).toBe(asks));
