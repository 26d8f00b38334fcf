import { afterEach, expect, test, vi } from "vitest";
import { Remembered } from "../src/api/client";

type Reply = { data?: { success: true; data: { n: number } }; error?: unknown; response: Response };
const full = (n: number, etag: string): Reply => ({ data: { success: true, data: { n } }, response: new Response(null, { status: 200, headers: { ETag: etag } }) });
const unchanged: Reply = { response: new Response(null, { status: 304 }) };

test("what has not changed is the same object, asked for with its ETag", async () => {
  const remembered = new Remembered<Reply>();
  const sent: Record<string, string>[] = [];
  const ask = (reply: Reply) => remembered.get((headers) => (sent.push(headers), Promise.resolve(reply)));
  const first = await ask(full(1, '"a"'));
  expect(first).toEqual({ n: 1 });
  expect(await ask(unchanged)).toBe(first);
  expect(await ask(full(2, '"b"'))).toEqual({ n: 2 });
  await ask(unchanged);
  expect(sent).toEqual([{}, { "If-None-Match": '"a"' }, { "If-None-Match": '"a"' }, { "If-None-Match": '"b"' }]);
});

test("a failure is thrown and what was remembered stays", async () => {
  const remembered = new Remembered<Reply>();
  await remembered.get(() => Promise.resolve(full(1, '"a"')));
  const failed: Reply = { error: { error: { code: "INTERNAL_ERROR", message: "no" } }, response: new Response(null, { status: 500 }) };
  await expect(remembered.get(() => Promise.resolve(failed))).rejects.toMatchObject({ status: 500, code: "INTERNAL_ERROR" });
  expect(await remembered.get(() => Promise.resolve(unchanged))).toEqual({ n: 1 });
});

const json = (status: number, data: unknown) => new Response(JSON.stringify({ success: status < 400, data, error: { code: "X", message: "no", details: { required_permission: "proxy.write" } } }), { status });
class Here extends Request {
  constructor(address: string | Request, init?: RequestInit) {
    super(typeof address === "string" ? new URL(address, "http://x") : address, init);
  }
}

/** The client of a page in the session of usr_1; what is sent is noted with its token. */
async function signedIn(respond: (path: string, token: string | null) => Response | Promise<Response>, user: () => string = () => "usr_1") {
  const sent: string[] = [];
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
    return respond(path, token);
  });
  const client = await import("../src/api/client");
  const { session } = await import("../src/lib/session.svelte");
  await session.start();
  return { ...client, session, sent };
}
afterEach(() => vi.unstubAllGlobals());

test("a request is sent again with a new token of the same user", async () => {
  const { api, data, sent } = await signedIn((_, token) => (token === "Bearer t1" ? json(401, null) : json(200, { n: 1 })));
  expect(await data(api.POST("/api/v1/proxies/{proxy_id}/stop", { params: { path: { proxy_id: "a" } } }))).toEqual({ n: 1 });
  expect(sent).toEqual(["/api/v1/proxies/a/stop Bearer t1", "/api/v1/proxies/a/stop Bearer t2"]);
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
