/**
 * The holder of an account who is signed in. The token is in memory, and in a cookie that scripts can't read and that
 * gives it back after a reload. Neither the session of users nor its cookie is read.
 */
import createClient from "openapi-fetch";
import { sent } from "../../api/client";
import { ApiError, failure } from "../../api/errors";
import type { paths } from "../../api/schema";
import { toasts } from "../../lib/toasts.svelte";

class Holder {
  username = $state<string | null>(null);
  /** Whether it is not known yet if a sign-in goes on. */
  starting = $state(true);
  /** Why the last sign-in has ended, if not by its holder. */
  ended = $state<"expired" | "password" | null>(null);
  #token: string | null = null;
  /** Counts sign-ins and sign-outs: what was asked for before the latest has neither a response nor an error any more. */
  #turn = 0;

  /** Requests with the token of the holder. */
  readonly api = createClient<paths>({ fetch: (request: Request) => this.#authorized(request) });

  /** Continue the sign-in of the cookie, if there is one. */
  async start(): Promise<void> {
    if (!this.starting) return;
    try {
      const { access_token, username } = await opened("resume");
      this.#become(access_token, username);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // then there is none, or it is asked for when the service is back
    } finally {
      this.starting = false;
    }
  }

  /** Sign in. Throws `ApiError`. */
  async signIn(username: string, password: string, proxy: string): Promise<void> {
    const body = { username, password, session: "cookie", ...(proxy ? { proxy } : {}) };
    this.#become((await opened("login", body)).access_token, username);
  }

  #become(token: string, username: string): void {
    this.#turn += 1;
    this.#token = token;
    this.username = username;
    this.ended = null;
  }

  /** End the token at the service as well; an error of that is of no use to who leaves. */
  async signOut(): Promise<void> {
    const last = this.#token;
    this.#turn += 1;
    this.forget(null);
    if (last !== null) await sent(new Request("/api/v1/me/logout", { method: "POST" }), last).catch(() => undefined);
  }

  forget(reason: "expired" | "password" | null): void {
    toasts.clear();
    this.#token = null;
    this.username = null;
    this.ended = reason;
  }

  async #authorized(request: Request): Promise<Response> {
    const [used, turn] = [this.#token, this.#turn];
    try {
      const response = await sent(request, used);
      if (response.status === 401 && used !== null && used === this.#token) this.forget("expired");
      if (turn === this.#turn) return response;
    } catch (error) {
      if (turn === this.#turn) throw error;
    }
    return new Promise(() => undefined);
  }
}

export const holder = new Holder();

/** What the service gives at a sign-in, with its cookie. Throws `ApiError`. */
async function opened(action: "login" | "resume", body?: object): Promise<{ access_token: string; username: string }> {
  const headers: Record<string, string> = body ? { "Content-Type": "application/json" } : {};
  const options: RequestInit = { method: "POST", credentials: "same-origin", cache: "no-store", headers, body: body ? JSON.stringify(body) : null };
  const response = await fetch(`/api/v1/me/${action}`, options).catch(() => null);
  if (response === null) throw new ApiError({ status: 0, code: "UNREACHABLE", message: "", requestId: null, details: null });
  const content = await response.json().catch(() => null);
  if (!response.ok || content === null) throw failure(response, content);
  return content.data;
}
