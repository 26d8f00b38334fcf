import { afterEach, expect, test, vi } from "vitest";
import { readable } from "../src/api/client";

const json = (status: number, data: unknown) => new Response(JSON.stringify({ success: status < 400, data, error: { code: "X", message: "no", details: { required_permission: "proxy.write" } } }), { status });
class Here extends Request {
  constructor(address: string | Request, init?: RequestInit) {
    super(typeof address === "string" ? new URL(address, "http://x") : address, init);
  }
}

/** The client of a page in the session of usr_1; what is sent is noted with its token. */
async function signedIn(respond: (path: string, token: string | null) => Response | Promise<Response>, user: () => string = () => "usr_1") {
  const sent: string[] = [];
  const etags: (string | null)[] = [];
  vi.resetModules();
  vi.stubGlobal("BroadcastChannel", undefined);
  vi.stubGlobal("addEventListener", undefined);
  vi.stubGlobal("Request", Here);
  let n = 0;
  vi.stubGlobal("fetch", async (to: string | Request) => {
    if (to === "/api/v1/auth/refresh") return json(200, { access_token: `t${++n}`, expires_in: 3600 });
    if (to === "/api/v1/auth/test") return json(200, { user_id: user(), username: "x", role: "operator", permissions: ["proxy.write"] });
    if (to === "/api/v1/auth/logout") return json(200, {});
    const { url, headers } = to as Request;
    const [path, token] = [new URL(url).pathname, headers.get("Authorization")];
    sent.push(`${path} ${token}`);
    etags.push(headers.get("If-None-Match"));
    return respond(path, token);
  });
  const client = await import("../src/api/client");
  const { session } = await import("../src/lib/session.svelte");
  await session.start();
  return { ...client, session, sent, etags };
}
afterEach(() => vi.unstubAllGlobals());

test("a request is sent again with a new token of the same user", async () => {
  const { api, data, sent } = await signedIn((_, token) => (token === "Bearer t1" ? json(401, null) : json(200, { n: 1 })));
  expect(await data(api.POST("/api/v1/proxies/{proxy_id}/stop", { params: { path: { proxy_id: "a" } } }))).toEqual({ n: 1 });
  expect(sent).toEqual(["/api/v1/proxies/a/stop Bearer t1", "/api/v1/proxies/a/stop Bearer t2"]);
});

test("a request of a session that has ended is sent when its user is back", async () => {
  const { api, data, session, sent } = await signedIn((_, token) => (token === "Bearer t1" ? json(401, null) : json(200, { n: 1 })));
  const plain = globalThis.fetch;
  vi.stubGlobal("fetch", (to: string | Request, init?: RequestInit) => (to === "/api/v1/auth/refresh" ? Promise.resolve(json(401, null)) : plain(to, init)));
  const stopped = data(api.POST("/api/v1/proxies/{proxy_id}/stop", { params: { path: { proxy_id: "a" } } }));
  await vi.waitUntil(() => session.phase === "ended");
  const listed = data(api.GET("/api/v1/proxies"));
  await new Promise((resolve) => setTimeout(resolve));
  expect(sent).toEqual(["/api/v1/proxies/a/stop Bearer t1"]);
  vi.stubGlobal("fetch", plain);
  await session.refresh();
  expect(await Promise.all([stopped, listed])).toEqual([{ n: 1 }, { n: 1 }]);
  expect(sent.slice(1).sort()).toEqual(["/api/v1/proxies Bearer t2", "/api/v1/proxies/a/stop Bearer t2"]);
});

test("a request is never sent for another user, who signed in in another tab", async () => {
  let user = "usr_1";
  const { api, session, sent } = await signedIn(
    () => {
      user = "usr_2";
      return json(401, null);
    },
    () => user,
  );
  const ended = vi.fn();
  void api.POST("/api/v1/proxies/{proxy_id}/stop", { params: { path: { proxy_id: "a" } } }).then(ended, ended);
  await vi.waitUntil(() => session.who?.id === "usr_2");
  await new Promise((resolve) => setTimeout(resolve)); // all that was ready has run
  expect(sent).toEqual(["/api/v1/proxies/a/stop Bearer t1"]);
  expect(ended).not.toHaveBeenCalled();
});

test("a response that comes after the sign-out is dropped", async () => {
  let respond!: (response: Response) => void;
  const { api, session } = await signedIn(() => new Promise((resolve) => (respond = resolve)));
  const ended = vi.fn();
  void api.GET("/api/v1/proxies").then(ended, ended);
  await vi.waitUntil(() => respond);
  await session.signOut();
  respond(json(200, { proxies: ["secret"] }));
  await new Promise((resolve) => setTimeout(resolve));
  expect(ended).not.toHaveBeenCalled();
});

test("a refusal of what was open to the user is a reason to ask what still is", async () => {
  const { api, data, session } = await signedIn(() => json(403, null));
  const recheck = vi.spyOn(session, "recheck").mockResolvedValue();
  await expect(data(api.GET("/api/v1/proxies"))).rejects.toMatchObject({ status: 403 });
  expect(recheck).toHaveBeenCalledOnce();
});

test("what has not changed is the same object, asked for with its ETag, each address by itself", async () => {
  const tagged = (n: number, etag: string) => new Response(JSON.stringify({ success: true, data: { n } }), { headers: { ETag: etag } });
  const unchanged = () => new Response(null, { status: 304, headers: { ETag: '"a"' } });
  const replies = [tagged(1, '"a"'), unchanged(), tagged(9, '"z"'), json(500, null), unchanged(), tagged(2, '"b"'), json(200, { n: 3 }), json(200, { n: 4 })];
  const { api, data, etags } = await signedIn(() => replies.shift()!);
  const ask = (q?: string) => data(api.GET("/api/v1/proxies", { params: { query: q ? { q } : {} } }));
  const first = await ask();
  expect(first).toEqual({ n: 1 });
  expect(await ask()).toBe(first);
  expect(await ask("x")).toEqual({ n: 9 });
  await expect(ask()).rejects.toMatchObject({ status: 500 });
  expect(await ask()).toBe(first);
  expect([await ask(), await ask(), await ask()]).toEqual([{ n: 2 }, { n: 3 }, { n: 4 }]);
  expect(etags).toEqual([null, '"a"', null, '"a"', '"a"', '"a"', '"b"', null]);
});

test("two requests at once for the same address have each what its own ETag was sent for", async () => {
  const waiting: ((response: Response) => void)[] = [];
  const { api, data } = await signedIn(() => new Promise((resolve) => waiting.push(resolve)));
  const ask = () => data(api.GET("/api/v1/proxies"));
  const reply = async (response: Response) => (await vi.waitUntil(() => waiting.length), waiting.shift()!(response));
  const tagged = (n: number, etag: string) => new Response(JSON.stringify({ success: true, data: { n } }), { headers: { ETag: etag } });
  const first = ask();
  await reply(tagged(1, '"a"'));
  const old = await first;
  const [one, other] = [ask(), ask()];
  await vi.waitUntil(() => waiting.length === 2);
  await reply(tagged(2, '"b"'));
  expect(await one).toEqual({ n: 2 });
  await reply(new Response(null, { status: 304, headers: { ETag: '"a"' } }));
  expect(await other).toBe(old);
});

test("characters that turn the direction of writing are written as records have them, and sent as they are stored", async () => {
  const plain = { names: ["office", "שלום"], of: { a: 1, b: null } };
  expect(readable(plain)).toBe(plain);
  const turned = "\u202e\u2066\u200f\u061cgnp.exe";
  expect(readable({ names: [turned], [turned]: 1 })).toEqual({ names: ["\\u202e\\u2066\\u200f\\u061cgnp.exe"], "\\u202e\\u2066\\u200f\\u061cgnp.exe": 1 });
  const { api, data, verbatim, sent } = await signedIn(() => json(200, { name: turned }));
  const path = { proxy_id: "a", username: readable(turned) };
  const shown = await data(api.GET("/api/v1/proxies/{proxy_id}/accounts/{username}", { params: { path } }));
  expect(shown).toEqual({ name: readable(turned) });
  expect(await verbatim(api.GET("/api/v1/config/export"))).toEqual({ name: turned });
  expect(sent[0]).toBe(`/api/v1/proxies/a/accounts/${encodeURIComponent(turned)} Bearer t1`);
});
