/** Requests to the API: with the access token, one refresh after a 401, and errors as one class. */
import createClient from "openapi-fetch";
import { untrack } from "svelte";
import { fleet } from "../lib/fleet.svelte";
import { session } from "../lib/session.svelte";
import { ticker } from "../lib/ticker.svelte";
import { ApiError, failure } from "./errors";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export { ApiError } from "./errors";

/** Characters that turn the direction of writing: they show another text than there is. */
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const WRITTEN = /%5Cu(061c|200[ef]|202[a-e]|206[6-9])/gi;

/** A request in whose address they are as they are stored: what the page shows of a name is a part of paths and filters. */
class StoredRequest extends Request {
  constructor(address: RequestInfo | URL, init?: RequestInit) {
    super(typeof address === "string" ? address.replace(WRITTEN, (_, code: string) => encodeURIComponent(String.fromCharCode(parseInt(code, 16)))) : address, init);
  }
}

/** The typed client: `api.GET("/api/v1/proxies", { params: { query }, signal })`. Its results go through `data`. */
export const api = createClient<paths>({ fetch: (request: Request) => untrack(() => authorized(request)), Request: StoredRequest });

interface Enveloped {
  success: true;
  data: unknown;
}
interface Result {
  data?: unknown;
  error?: unknown;
  response: Response;
}
type Data<R> = R extends { data?: infer B } ? (NonNullable<B> extends Enveloped ? NonNullable<B>["data"] : NonNullable<B>) : never;

/** `value` with these characters written as records have them, `\u202e`, in all its texts; the same where it has none. */
export function readable<T>(value: T): T {
  if (typeof value === "string") return value.replace(TURNS, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`) as T;
  if (typeof value !== "object" || value === null || value instanceof Blob) return value;
  const found = Array.isArray(value) ? value.map(readable) : Object.fromEntries(Object.entries(value).map(([name, each]) => [readable(name), readable(each)]));
  return Object.entries(found).every(([name, each]) => (value as Record<string, unknown>)[name] === each) ? value : (found as T);
}

/** The data of the envelope. Throws `ApiError`; an aborted request throws `DOMException` with the name AbortError. */
export async function data<R extends Result>(request: Promise<R>): Promise<Data<R>> {
  return (await tagged(request)).data;
}

/**
 * The data, the ETag for a change with `If-Match`, and the id of the request. What is read again and has not changed is
 * the same object again, so that nothing is drawn anew.
 */
export async function tagged<R extends Result>(request: Promise<R>): Promise<{ data: Data<R>; etag: string | null; requestId: string | null }> {
  const { shown, etag, requestId } = await responded(request);
  return { data: shown as Data<R>, etag, requestId };
}

/** As `data`, with all characters as they are stored: for files. */
export async function verbatim<R extends Result>(request: Promise<R>): Promise<Data<R>> {
  return (await responded(request)).content as Data<R>;
}

/** The content as it was sent and as the page shows it. */
async function responded(request: Promise<Result>): Promise<{ content: unknown; shown: unknown; etag: string | null; requestId: string | null }> {
  const result = await request.catch(translated);
  const [etag, requestId] = ["ETag", "X-Request-Id"].map((name) => result.response.headers.get(name)) as [string | null, string | null];
  const read = reads.get(result.response);
  if (result.response.status === 304 && read?.before) return { ...read.before, etag, requestId };
  const body = result.data as Enveloped | undefined;
  if (!result.response.ok || body === undefined) throw noted(failure(result.response, readable(result.error)));
  const content = typeof body === "object" && body !== null && "success" in body ? body.data : body;
  const shown = readable(content);
  if (read) {
    remember(read.address, etag, content, shown);
    fleet.read(read.address.replace(/[? ].*/, ""), shown);
  }
  return { content, shown, etag, requestId };
}

interface Known {
  etag: string;
  content: unknown;
  shown: unknown;
}
/** What was read last from an address. The same ETag is the same content, whoever reads it. */
const known = new Map<string, Known>();
const KNOWN_MAX = 50;
/** Of responses: the address that was read, and what was known of it then. */
const reads = new WeakMap<Response, { address: string; before: Known | undefined }>();

function remember(address: string, etag: string | null, content: unknown, shown: unknown): void {
  known.delete(address);
  if (etag !== null) known.set(address, { etag, content, shown });
  for (const oldest of [...known.keys()].slice(0, Math.max(0, known.size - KNOWN_MAX))) known.delete(oldest);
}

/** A body that ends early or is no JSON comes from something between the browser and the service. */
function translated(error: unknown): never {
  if (error instanceof SyntaxError || error instanceof TypeError)
    throw new ApiError({ status: 0, code: error instanceof SyntaxError ? "UNREADABLE" : "UNREACHABLE", message: "", requestId: null, details: null });
  throw error;
}

/** The page learns what its user may no longer do by a refusal of what was open to them. */
function noted(error: ApiError): ApiError {
  const lost = error.status === 403 ? error.requiredPermission : null;
  if (lost !== null && session.may(lost)) void session.recheck();
  return error;
}

/**
 * What `fetch` is for the client: never a cookie, except where the session itself is refreshed. A request ends with its
 * user: when that one is signed out, or another one is there, nothing is sent for it, and it has neither a response nor
 * an error any more, since the screen that asked is gone. It is untracked: a poll that read the session would begin anew,
 * and a form with it, whenever a token is renewed. When the session has ended, it waits for the user's return.
 */
async function authorized(request: Request): Promise<Response> {
  const user = session.who?.id;
  const isOver = () => session.who?.id !== user;
  try {
    const response = await attempted(request, isOver);
    if (response !== null && !isOver()) return response;
  } catch (error) {
    if (!isOver()) throw error;
  }
  return new Promise(() => undefined);
}

/** The response, to the second attempt if the access token was no longer good; null when `isOver` before that. */
async function attempted(request: Request, isOver: () => boolean): Promise<Response | null> {
  const again = request.clone();
  const token = await session.usableToken();
  if (isOver()) return null;
  const first = await sent(request, token);
  if (first.status !== 401 || isOver()) return first;
  const renewed = (await session.refresh()) ?? (await session.usableToken());
  if (isOver()) return null;
  return renewed === null ? first : sent(again, renewed);
}

/** Send a request with this token, and never with a cookie. Throws `ApiError` where there is no response. */
export async function sent(request: Request, token: string | null): Promise<Response> {
  const headers = new Headers(request.headers);
  const address = request.method === "GET" ? `${request.url} ${headers.get("Accept") ?? ""}` : undefined;
  const before = address === undefined ? undefined : known.get(address);
  if (before) headers.set("If-None-Match", before.etag);
  if (token !== null) headers.set("Authorization", `Bearer ${token}`);
  try {
    const response = await fetch(new Request(request, { headers, credentials: "omit", cache: "no-store" }));
    if (address !== undefined) reads.set(response, { address, before });
    fleet.responded(response);
    ticker.tick();
    return response;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, code: "UNREACHABLE", message: "", requestId: null, details: null });
  }
}
