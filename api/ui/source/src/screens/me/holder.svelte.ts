/**
 * The holder of an account who is signed in. The token is in memory alone: a reload ends it. Neither the session of users
 * nor its cookie is read or sent.
 */
import createClient from "openapi-fetch";
import { data, sent } from "../../api/client";
import type { paths } from "../../api/schema";
import { toasts } from "../../lib/toasts.svelte";

class Holder {
  username = $state<string | null>(null);
  /** Why the last sign-in has ended, if not by its holder. */
  ended = $state<"expired" | "password" | null>(null);
  #token: string | null = null;
  /** Counts sign-ins and sign-outs: what was asked for before the latest has neither a response nor an error any more. */
  #turn = 0;

  /** Requests with the token of the holder. */
  readonly api = createClient<paths>({ fetch: (request: Request) => this.#authorized(request) });

  /** Sign in. Throws `ApiError`. */
  async signIn(username: string, password: string, proxy: string): Promise<void> {
    const body = { username, password, ...(proxy ? { proxy } : {}) };
    const signedIn = await data(this.api.POST("/api/v1/me/login", { body: body as never }));
    this.#turn += 1;
    this.#token = signedIn.access_token;
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
