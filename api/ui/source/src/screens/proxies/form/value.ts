/** A proxy as its form has it, and as the API takes it. */
import type { Schemas } from "../../../api/client";
import { changes, isObject } from "../../../lib/differences";
import { fieldLines, fieldsOf } from "../../objects/kind";
import type { Detailed } from "../columns";

export const UPSTREAM_PROTOCOLS = ["http", "https", "socks4", "socks5"] as const;
export const PROTOCOLS = [...UPSTREAM_PROTOCOLS, "mixed"] as const;
export type Protocol = (typeof PROTOCOLS)[number];
type UpstreamProtocol = (typeof UPSTREAM_PROTOCOLS)[number];

export interface UpstreamValue {
  protocol: UpstreamProtocol;
  host: string;
  port: number | null;
  username: string;
  password: string;
  weight: number | null;
  name: string;
  tls: Schemas["UpstreamView"]["tls"];
  proxy_protocol: "" | "v1" | "v2";
  /** `country=fr, city=paris`; of a pool alone. */
  labels: string;
}
export interface BackendValue {
  url: string;
  timeout: number | null;
  cache_seconds: number | null;
  negative_seconds: number | null;
  on_error: "deny" | "allow_cached";
}
export interface ProxyValue {
  name: string;
  description: string;
  protocol: Protocol;
  host: string;
  /** A port, or a range: `20000-20999`. */
  port: string;
  tags: string[];
  auth: { enabled: boolean; username: string; password: string; backend: BackendValue | null };
  tls: { cert_file: string; key_file: string; client_ca: string; client_auth: "" | "require" | "optional"; client_crl: string };
  settings: { timeout: number | null; keep_alive: boolean; max_connections: number | null };
  access: Schemas["ProxyAccess"];
  tls_name: Detailed["tls_name"];
  /** Of targets; texts until they are sent. */
  tls_ports: string[];
  /** The name of one, empty for none. */
  policy: string;
  /** The name of one, in place of upstreams; empty for none. */
  pool: string;
  upstreams: UpstreamValue[];
  upstream_policy: Detailed["upstream_policy"];
  upstream_check: { enabled: boolean; interval: number | null; timeout: number | null };
  limits: { bandwidth_in: number | null; bandwidth_out: number | null; connections_per_client: number | null; requests_per_minute: number | null };
  /** `set` has `Name: value`, one a line. */
  headers: Pick<Schemas["ProxyHeaders"], "via" | "forwarded" | "remove"> & { set: string };
  accept_proxy_protocol: boolean;
  /** Addresses and networks with blanks between them. */
  bind_address: string;
  bind_policy: Detailed["bind_policy"];
  /** A number or `auto`. */
  workers: string;
  sleep_after: number | null;
  username_params: Schemas["UsernameParams"];
  nodes: { kind: "all" | "some"; names: string[]; tags: string[] };
}

/** Whether clients may come by TLS. */
export const speaksTls = ({ protocol }: Pick<ProxyValue, "protocol">): boolean => protocol === "https" || protocol === "mixed";

/** Who may use a new proxy: all at this machine, all in some networks, accounts, or one user with a password. */
export const WHO = ["machine", "networks", "accounts", "password"] as const;
export type Who = (typeof WHO)[number];
/** Where its requests leave. */
export const EXITS = ["direct", "pool", "upstream"] as const;
export type Exit = (typeof EXITS)[number];

/** The value without what was typed for another choice. */
export function chosenParts(value: ProxyValue, who: Who, exit: Exit): ProxyValue {
  const { auth, access } = value;
  const user = who === "password" ? auth : { ...auth, username: "", password: "" };
  return {
    ...value,
    auth: { ...user, enabled: who === "accounts" || who === "password" },
    access: { ...access, allow_clients: who === "networks" ? access.allow_clients : [] },
    tls: value.protocol === "https" ? value.tls : blank().tls,
    pool: exit === "pool" ? value.pool : "",
    upstreams: exit === "upstream" ? value.upstreams : [],
  };
}

/** What the form of a new proxy begins with. */
export const blank = (): ProxyValue => ({
  name: "", description: "", protocol: "http", host: "127.0.0.1", port: "", tags: [],
  auth: { enabled: false, username: "", password: "", backend: null },
  tls: { cert_file: "", key_file: "", client_ca: "", client_auth: "", client_crl: "" },
  settings: { timeout: 30, keep_alive: true, max_connections: 1000 },
  access: { allow_clients: [], deny_clients: [], allow_destinations: [], deny_destinations: [], mode: "enforce" }, tls_name: "auto", tls_ports: ["443"], policy: "",
  pool: "", upstreams: [], upstream_policy: "failover", upstream_check: { enabled: true, interval: 30, timeout: 5 },
  limits: { bandwidth_in: 0, bandwidth_out: 0, connections_per_client: 0, requests_per_minute: 0 },
  headers: { via: "pseudonym", forwarded: "off", set: "", remove: [] }, accept_proxy_protocol: false, bind_address: "", bind_policy: "random", workers: "1", sleep_after: 0,
  username_params: { enabled: false, separator: "-", reject_unknown: false }, nodes: { kind: "all", names: [], tags: [] },
});

export const blankUpstream = (): UpstreamValue => ({
  protocol: "http", host: "", port: null, username: "", password: "", weight: 1, name: "", tls: null, proxy_protocol: "", labels: "",
});

export const blankBackend = (): BackendValue => ({ url: "", timeout: 5, cache_seconds: 60, negative_seconds: 5, on_error: "deny" });

/** A stored proxy for the form. Passwords are not in it: what is left empty stays. */
export function valueOf(proxy: Detailed): ProxyValue {
  const { name, description, protocol, host, port, tags, settings, access, tls_name, upstream_policy, upstream_check, limits, accept_proxy_protocol, bind_policy, username_params } = proxy;
  const { via, forwarded, set, remove } = proxy.headers;
  const { url, timeout, cache_seconds, negative_seconds, on_error } = proxy.auth.backend ?? blankBackend();
  const backend = proxy.auth.backend ? { url, timeout, cache_seconds, negative_seconds, on_error } : null;
  const tls = { cert_file: proxy.tls?.cert_file ?? "", key_file: proxy.tls?.key_file ?? "", client_ca: proxy.tls?.client_ca ?? "", client_auth: proxy.tls?.client_auth ?? ("" as const), client_crl: proxy.tls?.client_crl ?? "" };
  return structuredClone({
    name, description, protocol, host, port: String(port), tags, settings, access, tls_name, upstream_policy, upstream_check, limits, accept_proxy_protocol, bind_policy, username_params, tls,
    tls_ports: proxy.tls_ports.map(String),
    headers: { via, forwarded, remove, set: fieldLines(set) },
    bind_address: [proxy.bind_address].flat().join(" "), workers: String(proxy.workers), sleep_after: proxy.sleep_after ?? 0,
    nodes: { kind: proxy.nodes.all ? ("all" as const) : ("some" as const), names: proxy.nodes.names ?? [], tags: proxy.nodes.tags ?? [] },
    policy: proxy.policy ?? "", pool: proxy.pool ?? "",
    auth: { enabled: proxy.auth.enabled, username: proxy.auth.username ?? "", password: "", backend },
    upstreams: proxy.upstreams.map(upstreamValue),
  });
}

/** The body of a create or, beside what was stored, of a PATCH. Numbers that are left empty are left out. */
export function bodyOf(before: ProxyValue, after: ProxyValue): Record<string, unknown> {
  const found = changes(before, after) as Record<string, unknown>;
  if (found.port !== undefined) found.port = portOf(after.port);
  if (found.tls_ports) found.tls_ports = after.tls_ports.map(portOf);
  if (found.auth) found.auth = authOf(found.auth as Partial<ProxyValue["auth"]>);
  if (found.tls) found.tls = nulls(found.tls as object);
  if (found.workers !== undefined) found.workers = /^\d+$/.test(after.workers.trim()) ? Number(after.workers) : after.workers.trim();
  if (found.bind_address) found.bind_address = listOf(after.bind_address);
  for (const name of ["policy", "pool"]) if (found[name] === "") found[name] = null;
  const { headers } = found as { headers?: Partial<ProxyValue["headers"]> };
  if (headers?.set !== undefined) found.headers = { ...headers, set: fieldsOf(headers.set) };
  if (found.nodes) found.nodes = nodesOf(after.nodes);
  if (found.upstreams) found.upstreams = after.upstreams.map(upstreamOf);
  return filled(found);
}

/** One of names and tags at least, as the API wants it. */
function nodesOf({ kind, names, tags }: ProxyValue["nodes"]): Record<string, unknown> {
  return kind === "all" ? { all: true } : { ...(names.length || !tags.length ? { names } : {}), ...(tags.length ? { tags } : {}) };
}

/** One port is a number in the API; it judges all else. */
export function portOf(text: string): number | string {
  const port = text.trim();
  return /^\d+$/.test(port) ? Number(port) : port;
}

const ANY = ["0.0.0.0", "::"];
/** The usual port of a proxy (squid's). */
const FIRST_PORT = 3128;

/** The port behind the last one of these proxies; empty where there is none. */
export function portBehind(proxies: readonly { port: number | string }[]): string {
  const next = Math.max(FIRST_PORT, ...proxies.map(({ port }) => ends(port)[1] + 1));
  return next <= 65_535 ? String(next) : "";
}

/** The name of one of these proxies that listens where another would; null: of none. The API judges all else. */
export function listenerAt(proxies: readonly { name: string; host: string; port: number | string }[], host: string, port: string): string | null {
  const [wanted, others] = [ends(port), proxies.filter((each) => each.host === host.trim() || [each.host, host.trim()].some((one) => ANY.includes(one)))];
  return others.find((each) => ends(each.port)[0] <= wanted[1] && wanted[0] <= ends(each.port)[1])?.name ?? null;
}

/** The first and the last port of a range; of no port where there is none. */
function ends(port: number | string): [number, number] {
  const [first = NaN, last = first] = String(port).trim().split("-").map(Number);
  return [first, last];
}

/** One entry as it is, several as a list. */
function listOf(text: string): string | string[] {
  const entries = text.split(/[\s,]+/).filter(Boolean);
  return entries.length > 1 ? entries : (entries[0] ?? "");
}

function authOf({ username, password, ...rest }: Partial<ProxyValue["auth"]>): Record<string, unknown> {
  return { ...rest, ...(username ? { username } : {}), ...(password ? { password } : {}) };
}

/** A stored upstream for the form. */
export function upstreamValue(each: Schemas["UpstreamView"]): UpstreamValue {
  const { protocol, host, port, weight, name, tls } = each;
  return { protocol, host, port, username: each.auth?.username ?? "", password: "", weight, name, tls, proxy_protocol: each.proxy_protocol ?? "", labels: "" };
}

export function upstreamOf({ protocol, host, port, username, password, weight, name, tls, proxy_protocol }: UpstreamValue): Record<string, unknown> {
  const auth = username ? { username, ...(password ? { password } : {}) } : undefined;
  const secured = protocol === "https" && tls ? filled(tls as unknown as Record<string, unknown>) : undefined;
  return filled({ protocol, host, port, weight, name: name || undefined, auth, tls: secured, proxy_protocol: proxy_protocol || undefined });
}

const nulls = (texts: object): Record<string, unknown> => Object.fromEntries(Object.entries(texts).map(([name, value]) => [name, value === "" ? null : value]));

const KEPT = new Set(["backend", "policy", "pool"]);

/** Without what is undefined, and without empty numbers, which the form has as null; `auth.backend`, `tls`, `policy` and `pool` keep theirs. */
function filled(value: Record<string, unknown>, path = ""): Record<string, unknown> {
  const kept = Object.entries(value).filter(([name, each]) => each !== undefined && (each !== null || path === "tls" || KEPT.has(name)));
  return Object.fromEntries(kept.map(([name, each]) => [name, isObject(each) ? filled(each, name) : each]));
}

/**
 * Upstreams from pasted lines: `protocol://user:password@host:port`, `host:port`, `host:port:user:password`, with labels
 * and a name behind it (`country=de #de1`). Lines that are unreadable, or have labels where there are none, are returned.
 */
export function readUpstreams(text: string, protocol: UpstreamProtocol, labels: boolean): { read: UpstreamValue[]; unread: string[] } {
  const read: UpstreamValue[] = [];
  const unread: string[] = [];
  for (const line of text.split(/\r?\n/).map((each) => each.trim())) {
    if (!line || line.startsWith("#")) continue;
    const found = readUpstream(line, protocol);
    if (found && (labels || !found.labels)) read.push(found);
    else unread.push(line);
  }
  return { read, unread };
}

const URL_LINE = /^(?:(https?|socks4|socks5)(?:a|h)?:\/\/)?(?:([^:@/]*)(?::([^@/]*))?@)?(\[[0-9a-fA-F:.]+\]|[^:@/\s]+):(\d{1,5})\/?$/;
const PLAIN_LINE = /^([^:@/\s]+):(\d{1,5}):([^:]+):(.+)$/;

function readUpstream(text: string, protocol: UpstreamProtocol): UpstreamValue | null {
  const words = text.split(/\s+/);
  let end = words.length;
  while (end > 1 && /^(#.|\w+=.)/.test(words[end - 1]!)) end -= 1;
  const behind = words.slice(end);
  const labels = behind.filter((each) => !each.startsWith("#")).join(", ");
  const name = behind.find((each) => each.startsWith("#"))?.slice(1) ?? "";
  const found = readAddress(words.slice(0, end).join(" "), protocol);
  return found && { ...found, labels, name };
}

function readAddress(line: string, protocol: UpstreamProtocol): UpstreamValue | null {
  const plain = PLAIN_LINE.exec(line);
  if (plain) return { ...blankUpstream(), protocol, host: plain[1]!, port: Number(plain[2]), username: plain[3]!, password: plain[4]! };
  const found = URL_LINE.exec(line);
  if (!found) return null;
  const [, scheme, username = "", password = "", host = "", port = ""] = found;
  return { ...blankUpstream(), protocol: (scheme as UpstreamProtocol) ?? protocol, host: host.replace(/^\[|\]$/g, ""), port: Number(port), username: decoded(username), password: decoded(password) };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a percent sign that is meant as one
  }
}
