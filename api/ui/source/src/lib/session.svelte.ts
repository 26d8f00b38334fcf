/**
 * Who is signed in. The access token is in memory alone; the refresh token is in a cookie that scripts can't read.
 * Tabs share that cookie: a lock keeps them from refreshing at once, and a channel tells the others who signed in or out.
 */
import { failure, isAbort } from "../api/errors";
import { held } from "./locks";

const AUTH = "/api/v1/auth";
/** Seconds before its end at which an access token is renewed. */
const MARGIN = 30;

export interface Who {
  id: string;
  username: string;
  role: string;
  permissions: string[];
}
type Phase = "idle" | "starting" | "out" | "in" | "unreachable";
type Message = { kind: "signed-out" } | { kind: "signed-in"; id: string };

const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("proxyfleet-session");

class Session {
  phase = $state<Phase>("idle");
  who = $state<Who | null>(null);
  /** Whether a session was there and came to its end; the sign-in page says so. */
  expired = $state(false);
  /** Whether the latest sign-out did not reach the service, so that its cookie still opens the session. */
  unended = $state(false);
  /** Whether a page without this session is shown: it is neither started nor renewed there. */
  resting = false;
  #token: string | null = null;
  #endsAt = 0;
  #refreshing: Promise<string | null> | null = null;

  constructor() {
    if (typeof addEventListener !== "undefined") addEventListener("pageshow", (event) => event.persisted && this.who !== null && !this.resting && void this.refresh());
    channel?.addEventListener("message", (event: MessageEvent<Message>) => this.#heard(event.data));
  }

  /** Continue the session of the cookie, if there is one. */
  async start(): Promise<void> {
    this.phase = "starting";
    if ((await this.refresh()) === null && this.phase === "starting") this.phase = "out";
    this.expired = false;
  }

  /** Sign in with a password. Throws `ApiError`. */
  async signIn(username: string, password: string): Promise<void> {
    const response = await post("login", { username, password, session: "cookie" });
    const body = await response.json().catch(() => null);
    if (!response.ok) throw failure(response, body);
    await this.adopt(body.data);
  }

  /** Become the user of a sign-in's response: after a password, or at the end of a sign-in at a provider. */
  async adopt(signedIn: { access_token: string; expires_in: number }): Promise<void> {
    this.#keep(signedIn);
    await this.#ask();
    if (this.who) say({ kind: "signed-in", id: this.who.id });
  }

  /** End the session here and in all other tabs. */
  async signOut(): Promise<void> {
    const token = this.#token;
    this.#forget();
    this.expired = false;
    say({ kind: "signed-out" });
    const response = await post("logout", undefined, token).catch(() => null);
    this.unended = response === null || (!response.ok && response.status !== 401);
  }

  /** The access token; a new one if it is about to end. */
  async freshToken(): Promise<string | null> {
    if (this.#token !== null && Date.now() / 1000 > this.#endsAt - MARGIN) return this.refresh();
    return this.#token;
  }

  /** A new access token; null when the session has ended, which then shows the sign-in page. */
  refresh(): Promise<string | null> {
    this.#refreshing ??= held("proxyfleet-refresh", () => this.#renew()).finally(() => (this.#refreshing = null));
    return this.#refreshing;
  }

  /** Whether the role or the user has this permission, or is of this role. `*` and `admin` imply all. */
  may(permission: string | null | undefined, role?: string): boolean {
    const granted = this.who?.permissions ?? [];
    return !permission || (role !== undefined && this.who?.role === role) || granted.some((each) => each === permission || each === "*" || each === "admin");
  }

  async #renew(): Promise<string | null> {
    try {
      const response = await post("refresh");
      if (response.status >= 500 || response.status === 429) return this.#unreachable();
      if (!response.ok) {
        this.expired = this.who !== null;
        this.#forget();
        return null;
      }
      this.#keep((await response.json()).data);
      if (this.who === null) await this.#ask();
      return this.#token;
    } catch (error) {
      if (!isAbort(error)) return this.#unreachable();
      throw error;
    }
  }

  /** The service is away: a session that runs is kept; the first page says so and tries again. */
  #unreachable(): string | null {
    if (this.who === null) this.phase = "unreachable";
    return this.#token;
  }

  async #ask(): Promise<void> {
    const headers = { Authorization: `Bearer ${this.#token}` };
    const response = await fetch(`${AUTH}/test`, { headers, credentials: "omit", cache: "no-store" });
    const body = await response.json();
    if (!response.ok) throw failure(response, body);
    const { user_id, username, role, permissions } = body.data;
    this.who = { id: user_id, username, role, permissions };
    this.phase = "in";
    this.expired = this.unended = false;
  }

  #keep(pair: { access_token: string; expires_in: number }): void {
    this.#token = pair.access_token;
    this.#endsAt = Date.now() / 1000 + pair.expires_in;
  }

  #forget(): void {
    this.#token = null;
    this.who = null;
    this.phase = "out";
  }

  #heard(message: Message): void {
    if (message.kind === "signed-out") {
      this.expired = false;
      this.#forget();
    } else if (this.who?.id !== message.id) {
      this.#forget();
      if (this.resting) this.phase = "idle";
      else void this.start();
    }
  }
}

export const session = new Session();

function say(message: Message): void {
  channel?.postMessage(message);
}

function post(action: string, body?: unknown, token?: string | null): Promise<Response> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const content = body === undefined ? null : JSON.stringify(body);
  return fetch(`${AUTH}/${action}`, { method: "POST", credentials: "same-origin", cache: "no-store", headers, body: content });
}
