/** An account as its form has it, and as the API takes it. */
import { changes } from "../../../lib/differences";
import { blankRules, rulesOf, type Listed, type RulesValue } from "../rules";

export interface AccountValue extends RulesValue {
  username: string;
  password: string;
  enabled: boolean;
  expires_at: string | null;
  plan: string;
  /** The name of one, empty for none. */
  policy: string;
  proxies: { kind: "all" | "some"; ids: string[]; tags: string[] };
  allow_clients: string[];
  certificates: string[];
  socks4_by_name: boolean;
  tags: string[];
  metadata: string;
}

export const blank = (): AccountValue => ({
  ...blankRules(), username: "", password: "", enabled: true, expires_at: null, plan: "", policy: "", proxies: { kind: "all", ids: [], tags: [] },
  allow_clients: [], certificates: [], socks4_by_name: false, tags: [], metadata: "",
});

/** 120 bits by chance, in characters that a URL takes as they are. */
export function newPassword(): string {
  const signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return Array.from(crypto.getRandomValues(new Uint8Array(20)), (byte) => signs[byte % 64]!).join("");
}

/** A stored account for the form; the password is never in it. */
export function valueOf(account: Listed): AccountValue {
  const { username, enabled, expires_at, allow_clients, certificates, socks4_by_name, tags, proxies } = account;
  const metadata = Object.entries(account.metadata).map(([name, value]) => `${name}=${value}`).join("\n");
  return structuredClone({
    ...rulesOf(account as RulesValue), username, password: "", enabled, expires_at, plan: account.plan ?? "", policy: account.policy ?? "", allow_clients, certificates, socks4_by_name, tags, metadata,
    proxies: { kind: proxies.all ? ("all" as const) : ("some" as const), ids: proxies.ids ?? [], tags: proxies.tags ?? [] },
  });
}

/** The body of a create or a PATCH: what is different, as the API takes it. */
export function bodyOf(before: AccountValue, after: AccountValue): Record<string, unknown> {
  const { proxies, metadata, password, plan, policy, ...found } = changes(before, after) as Partial<AccountValue>;
  const body: Record<string, unknown> = { ...found };
  if (proxies) body.proxies = after.proxies.kind === "all" ? { all: true } : named(after.proxies);
  if (metadata !== undefined) body.metadata = readMetadata(after.metadata);
  if (password) body.password = password;
  if (plan !== undefined) body.plan = plan || null;
  if (policy !== undefined) body.policy = policy || null;
  if (found.quota) body.quota = after.quota;
  if (found.schedule) body.schedule = after.schedule;
  return body;
}

function named({ ids, tags }: AccountValue["proxies"]): Record<string, string[]> {
  return { ...(ids.length || !tags.length ? { ids } : {}), ...(tags.length ? { tags } : {}) };
}

/** Lines of `name=value`. */
export function readMetadata(text: string): Record<string, string> {
  const lines = text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => [line.split("=", 1)[0]!.trim(), line.slice(line.indexOf("=") + 1 || line.length).trim()]));
}
