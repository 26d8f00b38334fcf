import { afterEach, beforeEach, expect, test, vi } from "vitest";

type Respond = (path: string, init: RequestInit) => Response | Promise<Response>;
const json = (status: number, data: unknown) => new Response(JSON.stringify({ success: status < 400, data, error: { code: "X", message: "no", details: null } }), { status });
const pair = (token: string, seconds = 3600) => json(200, { access_token: token, expires_in: seconds });
const who = (permissions = ["*"], id = "usr_1") => json(200, { user_id: id, username: id === "usr_1" ? "bob" : "eve", role: "administrator", permissions });
/** A promise, and what settles it. */
function later<T>() {
  let settle!: (value: T) => void;
  return { promise: new Promise<T>((resolve) => (settle = resolve)), settle };
}

let calls: string[] = [];

/** A session of a page that has just been loaded, with a service that responds so. */
async function loaded(respond: Respond) {
  calls = [];
  vi.resetModules();
  vi.stubGlobal("fetch", async (path: string, init: RequestInit) => {
    calls.push(path.replace("/api/v1/auth/", ""));
    return respond(path, init);
  });
  return (await import("../src/lib/session.svelte")).session;
}

beforeEach(() => {
  vi.stubGlobal("BroadcastChannel", undefined);
  vi.stubGlobal("addEventListener", undefined);
});
afterEach(() => vi.unstubAllGlobals());

test("a reload continues the session of the cookie", async () => {
  const session = await loaded((path) => (path.endsWith("refresh") ? pair("t1") : who()));
  await session.start();
  expect([session.phase, session.who?.username, await session.freshToken()]).toEqual(["in", "bob", "t1"]);
  expect(calls).toEqual(["refresh", "test"]);
});

test("without a cookie the page for signing in is shown", async () => {
  const session = await loaded(() => json(401, null));
  await session.start();
  expect(session.phase).toBe("out");
});

test("many requests that need a new token refresh once", async () => {
  let n = 0;
  const session = await loaded((path) => (path.endsWith("refresh") ? pair(`t${++n}`) : who()));
  await session.start();
  calls = [];
  expect(await Promise.all([session.refresh(), session.refresh(), session.refresh()])).toEqual(["t2", "t2", "t2"]);
  expect(calls).toEqual(["refresh", "test"]);
});

test("a token that is about to end is renewed before it is used", async () => {
  let n = 0;
  const session = await loaded((path) => (path.endsWith("refresh") ? pair(`t${++n}`, 20) : who()));
  await session.start();
  expect(await session.freshToken()).toBe("t2");
});

test("a session that has ended is said to have, and keeps its user and their page until they return", async () => {
  let ended = false;
  const session = await loaded((path) => (path.endsWith("refresh") ? (ended ? json(401, null) : pair("t1")) : who()));
  await session.start();
  ended = true;
  expect([await session.refresh(), await session.refresh()]).toEqual([null, null]);
  expect([session.phase, session.who?.username, await session.freshToken()]).toEqual(["ended", "bob", null]);
  const resumed = vi.fn();
  void session.usableToken().then(resumed);
  await new Promise((resolve) => setTimeout(resolve));
  expect(resumed).not.toHaveBeenCalled();
  ended = false;
  await session.refresh(); // as another tab does, where the user has signed in
  await vi.waitUntil(() => resumed.mock.calls.length);
  expect([session.phase, ...resumed.mock.calls]).toEqual(["in", ["t1"]]);
});

test("another password goes with a new session, for which all requests of this moment wait", async () => {
  const late = later<Response>();
  const session = await loaded((path) => (path.includes("/users/") ? late.promise : path.endsWith("test") ? who() : pair(path.endsWith("login") ? "t2" : "t1")));
  await session.start();
  const changed = session.changePassword("old", "new");
  const waiting = session.refresh();
  late.settle(json(200, {}));
  await changed;
  expect([await waiting, await session.freshToken(), session.phase]).toEqual(["t2", "t2", "in"]);
  expect(calls).toEqual(["refresh", "test", "/api/v1/users/usr_1", "login", "test"]);
});

test("a password that is not changed leaves the session as it is", async () => {
  const session = await loaded((path) => (path.includes("/users/") ? json(400, null) : path.endsWith("test") ? who() : pair("t1")));
  await session.start();
  await expect(session.changePassword("wrong", "new")).rejects.toMatchObject({ status: 400 });
  expect([session.phase, await session.freshToken()]).toEqual(["in", "t1"]);
});

test("a service that is away ends no session", async () => {
  let away = false;
  const session = await loaded((path) => {
    if (away) throw new TypeError("Failed to fetch");
    return path.endsWith("refresh") ? pair("t1") : who();
  });
  await session.start();
  away = true;
  expect(await session.refresh()).toBe("t1");
  expect(session.phase).toBe("in");
});

test("signing out forgets the token even if the service is away, and says that the session goes on there", async () => {
  const session = await loaded((path) => {
    if (path.endsWith("logout")) throw new TypeError("Failed to fetch");
    return path.endsWith("refresh") ? pair("t1") : who();
  });
  await session.start();
  await session.signOut();
  expect([session.phase, session.unended, await session.freshToken()]).toEqual(["out", true, null]);
});

test("the cookie of another user, who signed in elsewhere, changes the user, and gives no token to requests of the one before", async () => {
  let id = "usr_1";
  const session = await loaded((path) => (path.endsWith("refresh") ? pair("t") : who(["*"], id)));
  const before: (string | undefined)[] = [];
  session.onother = () => before.push(session.who?.username);
  await session.start();
  id = "usr_2";
  expect(await session.refresh()).toBeNull();
  expect([session.phase, session.who?.username, await session.freshToken()]).toEqual(["in", "eve", "t"]);
  expect(before).toEqual([undefined]);
});

test("a refresh that ends after the sign-out begins no session", async () => {
  const late = later<Response>();
  let n = 0;
  const session = await loaded((path) => (path.endsWith("refresh") ? (n++ ? late.promise : pair("t1")) : path.endsWith("logout") ? json(200, {}) : who()));
  await session.start();
  const refreshed = session.refresh();
  await session.signOut();
  late.settle(pair("t2"));
  expect([await refreshed, session.phase, session.who, await session.freshToken()]).toEqual([null, "out", null, null]);
  expect(calls).toEqual(["refresh", "test", "refresh", "logout"]);
});

test("a sign-in waits for the sign-out before, whose response deletes the cookie", async () => {
  const late = later<Response>();
  const session = await loaded((path) => (path.endsWith("logout") ? late.promise : path.endsWith("test") ? who() : pair("t1")));
  await session.start();
  const out = session.signOut();
  const signedIn = session.signIn("bob", "x");
  await Promise.resolve();
  expect(calls).toEqual(["refresh", "test", "logout"]);
  late.settle(json(200, {}));
  await Promise.all([out, signedIn]);
  expect(calls).toEqual(["refresh", "test", "logout", "login", "test"]);
  expect(session.phase).toBe("in");
});

test("a refresh learns what the user may do now, and so does a refusal", async () => {
  let permissions = ["*"];
  const session = await loaded((path) => (path.endsWith("refresh") ? pair("t1") : who(permissions)));
  await session.start();
  permissions = ["proxy.read", "metrics.read"];
  await session.refresh();
  expect([session.may("users.write"), session.may("metrics.read")]).toEqual([false, true]);
  permissions = ["proxy.read"];
  await session.recheck();
  expect([session.may("metrics.read"), session.may("proxy.read")]).toEqual([false, true]);
});

test.each([
  [["*"], "users.write", true],
  [["admin"], "users.write", true],
  [["proxy.read"], "proxy.read", true],
  [["proxy.read"], "proxy.write", false],
  [[], null, true],
])("%j may %s: %s", async (permissions, wanted, may) => {
  const session = await loaded((path) => (path.endsWith("refresh") ? pair("t1") : who(permissions)));
  await session.start();
  expect(session.may(wanted)).toBe(may);
});
