/**
 * Who is signed in. The access token is in memory alone; the refresh token is in a cookie that scripts can't read.
 * Tabs share that cookie: a lock keeps them from refreshing at once, and a channel tells the others who signed in or out.
 * Another tab may have signed another user in: each new token is asked for its user, and never used for what the user
 * before has asked for.
 */
import { ApiError, failure, isAbort } from "../api/errors";
import { held } from "./locks";

const AUTH = "/api/v1/auth";
const LOCK = "proxyfleet-refresh";
/** Seconds before its end at which an access token is renewed. */
const MARGIN = 30;

export interface Who {
  id: string;
  username: string;
  role: string;
  permissions: string[];
  /** Whether it has the password of the first start, which this session has not chosen to keep. */
  firstPassword: boolean;
}
/** `ended`: without a token, until its user signs in again. What was on the page stays there. */
type Phase = "idle" | "starting" | "out" | "in" | "ended" | "unreachable";
type Message = { kind: "signed-out" } | { kind: "signed-in"; id: string };
interface Pair {
  access_token: string;
  expires_in: number;
  /** False where the browser got no cookie, which would be sent in clear. */
  session_kept?: boolean | null;
}

const channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("proxyfleet-session");

class Session {
  phase = $state<Phase>("idle");
  who = $state<Who | null>(null);
  /** Whether the latest sign-out did not reach the service, so that its cookie still opens the session. */
  unended = $state(false);
  /** Whether the session survives a reload. */
  kept = $state(true);
  /** The first password, where it was typed just now, so that another one can be chosen at once. */
  typed: string | null = null;
  /** Whether a page without this session is shown: it is neither started nor renewed there. */
  resting = false;
  /** Called before another user than the one before is shown: nothing of that one may be left. */
  onother: () => void = () => undefined;
  #token: string | null = null;
  #endsAt = 0;
  #refreshing: Promise<string | null> | null = null;
  /** Changes when a session ends: what was asked for before, and comes late, begins no session then. */
  #turn = 0;
  #latest: string | null = null;
  #leaving: Promise<unknown> = Promise.resolve();
  #waiting: (() => void)[] = [];

  constructor() {
    if (typeof addEventListener !== "undefined") addEventListener("pageshow", (event) => event.persisted && this.who !== null && !this.resting && void this.refresh());
    channel?.addEventListener("message", (event: MessageEvent<Message>) => this.#heard(event.data));
  }

  /** Continue the session of the cookie, if there is one. */
  async start(): Promise<void> {
    this.phase = "starting";
    await this.refresh();
    if (this.who) say({ kind: "signed-in", id: this.who.id });
  }

  /** Sign in with a password. Throws `ApiError`. */
  async signIn(username: string, password: string): Promise<void> {
    await this.#leaving; // its response deletes the cookie
    const response = await held(LOCK, () => post("login", { username, password, session: "cookie" }));
    const body = await response.json().catch(() => null);
    if (!response.ok) throw failure(response, body);
    const who = await userOf(body.data.access_token);
    this.typed = who.firstPassword ? password : null;
    this.#become(body.data, who);
    say({ kind: "signed-in", id: who.id });
  }

  /**
   * Give the user another password, which ends all their sessions, and continue with a new one here. What other parts of
   * the page ask for meanwhile waits for it. Throws `ApiError`.
   */
  async changePassword(current: string, next: string): Promise<void> {
    const changed = this.#changePassword(current, next);
    const waiting = changed.then(
      () => this.#token,
      () => this.#token,
    );
    this.#refreshing = waiting;
    try {
      await changed;
    } finally {
      if (this.#refreshing === waiting) this.#refreshing = null;
    }
  }

  /** End the session here and in all other tabs. */
  async signOut(): Promise<void> {
    const token = this.#token;
    this.#forget();
    say({ kind: "signed-out" });
    const left = post("logout", undefined, token).catch(() => null);
    this.#leaving = left;
    const response = await left;
    this.unended = response === null || (!response.ok && response.status !== 401);
  }

  /** The access token; a new one if it is about to end. */
  async freshToken(): Promise<string | null> {
    if (this.#token !== null && Date.now() / 1000 > this.#endsAt - MARGIN) return this.refresh();
    return this.#token;
  }

  /** A new access token; null when the session has ended, which then shows the sign-in page. */
  refresh(): Promise<string | null> {
    if (this.#refreshing) return this.#refreshing;
    const turn = this.#turn;
    const mine = held(LOCK, () => this.#renew(turn)).finally(() => {
      if (this.#refreshing === mine) this.#refreshing = null;
    });
    return (this.#refreshing = mine);
  }

  /** As `freshToken`; while the session has ended, it waits until that goes on, or is over. */
  async usableToken(): Promise<string | null> {
    for (;;) {
      const token = await this.freshToken();
      if (this.phase !== "ended") return token;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  /** Ask again what the user may do: the API has refused what should have been possible. */
  async recheck(): Promise<void> {
    const [turn, token] = [this.#turn, this.#token];
    if (token === null) return;
    try {
      const who = await userOf(token);
      if (turn === this.#turn) this.who = who;
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof ApiError)) throw error; // the next refusal asks again
    }
  }

  /** Whether the role or the user has this permission, or is of this role. `*` and `admin` imply all. */
  may(permission: string | null | undefined, role?: string): boolean {
    const granted = this.who?.permissions ?? [];
    return !permission || (role !== undefined && this.who?.role === role) || granted.some((each) => each === permission || each === "*" || each === "admin");
  }

  async #changePassword(current: string, next: string): Promise<void> {
    const who = this.who;
    if (who === null) return;
    const headers = { Authorization: `Bearer ${this.#token}`, "Content-Type": "application/json" };
    const body = JSON.stringify({ password: next, current_password: current });
    const response = await reached(fetch(`/api/v1/users/${who.id}`, { method: "PATCH", credentials: "omit", cache: "no-store", headers, body }));
    if (!response.ok) throw failure(response, await response.json().catch(() => null));
    try {
      await this.signIn(who.username, next);
    } catch (error) {
      this.#end(); // the password is another one all the same
      if (!(error instanceof ApiError || error instanceof TypeError)) throw error;
    }
  }

  async #renew(turn: number): Promise<string | null> {
    try {
      if (turn !== this.#turn) return null;
      const response = await post("refresh");
      if (turn !== this.#turn) return null;
      if (response.status >= 500 || response.status === 429) return this.#unreachable();
      if (!response.ok) return this.#end();
      const pair: Pair = (await response.json()).data;
      const who = await userOf(pair.access_token);
      if (turn !== this.#turn) return null;
      const same = this.who === null || this.who.id === who.id;
      if (!same) this.#forget();
      this.#become(pair, who);
      return same ? this.#token : null;
    } catch (error) {
      if (turn !== this.#turn) return null;
      if (error instanceof ApiError && error.status === 401) return this.#end();
      if (!isAbort(error)) return this.#unreachable();
      throw error;
    }
  }

  #end(): null {
    const who = this.who;
    if (this.phase === "ended") return null;
    this.#forget();
    if (who !== null) [this.who, this.phase] = [who, "ended"];
    return null;
  }

  /** The service is away: a session that runs is kept; the first page says so and tries again. */
  #unreachable(): string | null {
    if (this.who === null) this.phase = "unreachable";
    return this.#token;
  }

  #become(pair: Pair, who: Who): void {
    if (this.#latest !== null && this.#latest !== who.id) this.onother();
    this.#latest = who.id;
    this.#token = pair.access_token;
    this.#endsAt = Date.now() / 1000 + pair.expires_in;
    this.kept = pair.session_kept !== false;
    this.who = who;
    this.phase = "in";
    this.unended = false;
    this.#settle();
  }

  #forget(): void {
    this.#turn += 1;
    this.#refreshing = null;
    this.#token = this.typed = null;
    this.who = null;
    this.phase = "out";
    this.#settle();
  }

  #settle(): void {
    for (const each of this.#waiting.splice(0)) each();
  }

  #heard(message: Message): void {
    if (message.kind === "signed-out") this.#forget();
    else if (this.who?.id !== message.id) {
      this.#forget();
      if (this.resting) this.phase = "idle";
      else void this.start();
    } else if (this.phase === "ended") void this.refresh();
  }
}

export const session = new Session();

function say(message: Message): void {
  channel?.postMessage(message);
}

/** The response. Throws `ApiError` where there is none. */
async function reached(request: Promise<Response>): Promise<Response> {
  try {
    return await request;
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError({ status: 0, code: "UNREACHABLE", message: "", requestId: null, details: null });
    throw error;
  }
}

/** Whose access token it is, and what that user may do now. Throws `ApiError`. */
async function userOf(token: string): Promise<Who> {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(`${AUTH}/test`, { headers, credentials: "omit", cache: "no-store" });
  const body = await response.json();
  if (!response.ok) throw failure(response, body);
  const { user_id, username, role, permissions, first_password } = body.data;
  return { id: user_id, username, role, permissions, firstPassword: first_password === true };
}

function post(action: string, body?: unknown, token?: string | null): Promise<Response> {
  const headers: Record<string, string> = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const content = body === undefined ? null : JSON.stringify(body);
  const keepalive = action === "logout"; // also when the tab is closed at this moment
  return fetch(`${AUTH}/${action}`, { method: "POST", credentials: "same-origin", cache: "no-store", headers, body: content, keepalive });
}
