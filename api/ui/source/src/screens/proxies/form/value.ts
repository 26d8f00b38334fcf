/** A proxy as its form has it, and as the API takes it. */
import type { Schemas } from "../../../api/client";
import { changes } from "../../../lib/differences";
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
  port: number | null;
  tags: string[];
  auth: { enabled: boolean; username: string; password: string; backend: BackendValue | null };
  tls: { cert_file: string; key_file: string; client_ca: string; client_auth: "" | "require" | "optional"; client_crl: string };
  settings: { timeout: number | null; keep_alive: boolean; max_connections: number | null };
  access: Schemas["ProxyAccess"];
  upstreams: UpstreamValue[];
  upstream_policy: Detailed["upstream_policy"];
  upstream_check: { enabled: boolean; interval: number | null; timeout: number | null };
  limits: { bandwidth_in: number | null; bandwidth_out: number | null; connections_per_client: number | null; requests_per_minute: number | null };
  headers: Schemas["ProxyHeaders"];
  accept_proxy_protocol: boolean;
  bind_address: string;
}

/** What the form of a new proxy begins with. */
export const blank = (): ProxyValue => ({
  name: "", description: "", protocol: "http", host: "127.0.0.1", port: null, tags: [],
  auth: { enabled: false, username: "", password: "", backend: null },
  tls: { cert_file: "", key_file: "", client_ca: "", client_auth: "", client_crl: "" },
  settings: { timeout: 30, keep_alive: true, max_connections: 1000 },
  access: { allow_clients: [], deny_clients: [], allow_destinations: [], deny_destinations: [], mode: "enforce" },
  upstreams: [], upstream_policy: "failover", upstream_check: { enabled: true, interval: 30, timeout: 5 },
  limits: { bandwidth_in: 0, bandwidth_out: 0, connections_per_client: 0, requests_per_minute: 0 },
  headers: { via: "pseudonym" }, accept_proxy_protocol: false, bind_address: "",
});

export const blankUpstream = (): UpstreamValue => ({
  protocol: "http", host: "", port: null, username: "", password: "", weight: 1, name: "", tls: null, proxy_protocol: "",
});

export const blankBackend = (): BackendValue => ({ url: "", timeout: 5, cache_seconds: 60, negative_seconds: 5, on_error: "deny" });

/** A stored proxy for the form. Passwords are not in it: what is left empty stays. */
export function valueOf(proxy: Detailed): ProxyValue {
  const { name, description, protocol, host, port, tags, settings, access, upstream_policy, upstream_check, limits, headers, accept_proxy_protocol, bind_address } = proxy;
  const { url, timeout, cache_seconds, negative_seconds, on_error } = proxy.auth.backend ?? blankBackend();
  const backend = proxy.auth.backend && { url, timeout, cache_seconds, negative_seconds, on_error };
  const tls = { cert_file: proxy.tls?.cert_file ?? "", key_file: proxy.tls?.key_file ?? "", client_ca: proxy.tls?.client_ca ?? "", client_auth: proxy.tls?.client_auth ?? ("" as const), client_crl: proxy.tls?.client_crl ?? "" };
  return structuredClone({
    name, description, protocol, host, port, tags, settings, access, upstream_policy, upstream_check, limits, headers, accept_proxy_protocol, bind_address, tls,
    auth: { enabled: proxy.auth.enabled, username: proxy.auth.username ?? "", password: "", backend },
    upstreams: proxy.upstreams.map((each) => ({ protocol: each.protocol, host: each.host, port: each.port, username: each.auth?.username ?? "", password: "", weight: each.weight, name: each.name, tls: each.tls, proxy_protocol: each.proxy_protocol ?? ("" as const) })),
  });
}

/** The body of a create or, beside what was stored, of a PATCH. Numbers that are left empty are left out. */
export function bodyOf(before: ProxyValue, after: ProxyValue): Record<string, unknown> {
  const found = changes(before, after) as Record<string, unknown>;
  if (found.auth) found.auth = authOf(found.auth as Partial<ProxyValue["auth"]>);
  if (found.tls) found.tls = nulls(found.tls as object);
  if (found.upstreams) found.upstreams = after.upstreams.map(upstreamOf);
  return filled(found);
}

function authOf({ username, password, ...rest }: Partial<ProxyValue["auth"]>): Record<string, unknown> {
  return { ...rest, ...(username ? { username } : {}), ...(password ? { password } : {}) };
}

function upstreamOf({ protocol, host, port, username, password, weight, name, tls, proxy_protocol }: UpstreamValue): Record<string, unknown> {
  const auth = username ? { username, ...(password ? { password } : {}) } : undefined;
  const secured = protocol === "https" && tls ? filled(tls as unknown as Record<string, unknown>) : undefined;
  return filled({ protocol, host, port, weight, name: name || undefined, auth, tls: secured, proxy_protocol: proxy_protocol || undefined });
}

const nulls = (texts: object): Record<string, unknown> => Object.fromEntries(Object.entries(texts).map(([name, value]) => [name, value === "" ? null : value]));

/** Without what is undefined, and without empty numbers, which the form has as null; `auth.backend` and `tls` keep theirs. */
function filled(value: Record<string, unknown>, path = ""): Record<string, unknown> {
  const kept = Object.entries(value).filter(([name, each]) => each !== undefined && (each !== null || path === "tls" || name === "backend"));
  return Object.fromEntries(kept.map(([name, each]) => [name, isObject(each) ? filled(each, name) : each]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Upstreams from pasted lines: `protocol://user:password@host:port`, `host:port`, `host:port:user:password`. Unreadable lines are returned. */
export function readUpstreams(text: string, protocol: UpstreamProtocol): { read: UpstreamValue[]; unread: string[] } {
  const read: UpstreamValue[] = [];
  const unread: string[] = [];
  for (const line of text.split(/\r?\n/).map((each) => each.trim())) {
    if (!line || line.startsWith("#")) continue;
    const found = readUpstream(line, protocol);
    if (found) read.push(found);
    else unread.push(line);
  }
  return { read, unread };
}

const URL_LINE = /^(?:(https?|socks4|socks5)(?:a|h)?:\/\/)?(?:([^:@/]*)(?::([^@/]*))?@)?(\[[0-9a-fA-F:.]+\]|[^:@/\s]+):(\d{1,5})\/?$/;
const PLAIN_LINE = /^([^:@/\s]+):(\d{1,5}):([^:]+):(.+)$/;

function readUpstream(line: string, protocol: UpstreamProtocol): UpstreamValue | null {
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
