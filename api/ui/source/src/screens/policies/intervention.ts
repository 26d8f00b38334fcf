/**
 * What is done about traffic where it is seen: a host is blocked, requests are limited, an account is disabled. Blocks and limits are
 * rules of the policy for all proxies. The service names a block; `proxyfleet unblock` ends it, too.
 */
import { api, data, tagged, type Schemas } from "../../api/client";
import type { MenuItem } from "../../components";
import { session } from "../../lib/session.svelte";
import { t } from "../../texts";
import { limitText } from "../accounts/rules";
import { ifMatch } from "../objects/kind";
import { namesOf } from "../objects/names";
import type { RULE_LIMITS } from "./policy";

export type Deed = "block" | "limit" | "disable";
/** What is known of the traffic; texts are empty where there is nothing. */
export interface Subject {
  host: string;
  account: string;
  proxy: { id: string; name: string } | null;
}
export interface Intervention extends Subject {
  deed: Deed;
}
type Limits = Record<(typeof RULE_LIMITS)[number], number | null>;
/** A block or a limit as the form has it: on one proxy or all, for one account or everybody, for some seconds or, with 0, for good. */
export interface Wanted extends Subject {
  deed: "block" | "limit";
  seconds: number;
  limits: Limits;
  endExisting: boolean;
}
type Rule = Schemas["RuleView"];

/** What the policy for all proxies is called, unless the settings have one. */
export const EVERYWHERE = "everywhere";
export const SPANS = [3600, 86_400, 604_800, 0] as const;
export type Span = `${(typeof SPANS)[number]}`;
/** Characters of the name of a rule. */
const NAME_MAX = 100;

/** The host of a URL or of `host:port`. */
export function hostOf(target: string): string {
  const host = /^(?:[a-z][a-z0-9+.-]*:\/\/)?(?:[^/?#@]*@)?(\[[^\]/]*\]|[^/?#:]*)/i.exec(target)?.[1] ?? "";
  return host.replace(/^\[|\]$/g, "").toLowerCase();
}

/** The menu of a row: only what its visitor may do, and what there is something for. */
export function interventions(subject: Subject, act: (wanted: Intervention) => void): MenuItem[] {
  const { host, account } = subject;
  const does = (deed: Deed, title: string): MenuItem => ({ title, icon: deed === "limit" ? "clock" : "cross", danger: deed !== "limit", run: () => act({ ...subject, deed }) });
  if (!session.may("proxy.write")) return [];
  const rules = session.may("settings.read");
  return [
    ...(rules && host ? [does("block", t("intervention.block", { host }))] : []),
    ...(rules && (host || account) ? [does("limit", t("intervention.limit"))] : []),
    ...(account ? [does("disable", t("intervention.disable", { account }))] : []),
  ];
}

/** The name of a limit says all that it matches. */
function nameOf({ host, account, proxy }: Subject): string {
  const name = ["limit", host, proxy && `on ${proxy.name}`, account && `for ${account}`].filter(Boolean).join(" ");
  return name.length <= NAME_MAX ? name : `${name.slice(0, NAME_MAX - 9)} ${digest(name)}`;
}

/** The rule as the API takes it; a block has no name yet. */
export function ruleOf(wanted: Wanted, now: number = Date.now()): Schemas["RuleFirst"] {
  const { deed, host, account, proxy, seconds, limits } = wanted;
  const match = {
    ...(host ? { destinations: [host] } : {}), ...(account ? { accounts: [account] } : {}), ...(proxy ? { proxies: [proxy.id] } : {}),
    ...(seconds ? { until: new Date(now + seconds * 1000).toISOString() } : {}),
  };
  if (deed === "block") return { match, action: { use: "deny" }, mode: "enforce" };
  return { name: nameOf(wanted), match, action: { limits: Object.fromEntries(Object.entries(limits).filter(([, value]) => value)) }, mode: "enforce" };
}

/** What it will do, in a sentence or two. */
export function sentenceOf({ deed, host, account, proxy, seconds, limits }: Wanted, policy: string): string {
  const values = {
    what: host ? t("intervention.to", { host }) : t("intervention.to.all"),
    where: proxy ? t("intervention.where.one", { proxy: proxy.name }) : t("intervention.where.all"),
    whom: account ? t("intervention.whom.one", { account }) : t("intervention.whom.all"),
    long: t(`intervention.long.${seconds as (typeof SPANS)[number]}`),
    limits: (Object.keys(limits) as (keyof Limits)[]).filter((key) => limits[key]).map((key) => `${t(`accounts.limit.${key}`)} ${limitText(key, limits[key]!)}`).join(", "),
  };
  const place = policy ? t(`intervention.${deed}.place`, { policy }) : t("intervention.place.new", { policy: EVERYWHERE });
  return `${t(`intervention.${deed}.preview`, values)} ${place}`;
}

/** The name of the policy that holds for all proxies; empty without one. */
export async function policyForAll(): Promise<string> {
  return (await data(api.GET("/api/v1/settings"))).proxy.policy;
}

/** Put the rule into the policy for all proxies, which is made if there is none. Returns what takes it back. */
export async function enforce(wanted: Wanted): Promise<() => Promise<void>> {
  const policy = (await policyForAll()) || (await made());
  const before = await rulesOf(policy);
  const rule = ruleOf(wanted);
  let { name } = rule;
  if (wanted.deed === "block") {
    const body = { ...rule, ...(wanted.endExisting ? { end_existing: true } : {}) };
    name = (await data(api.POST("/api/v1/policies/{policy_id}/rules", { params: { path: { policy_id: policy } }, body }))).policy.rules[0]!.name;
  } else await replace(policy, before.etag, [...before.rules.filter((each) => each.name !== name), rule]); // as the first one it would pass over what other rules deny
  const same = before.rules.findIndex((rule) => rule.name === name);
  return async () => {
    const now = await rulesOf(policy);
    const left = now.rules.filter((rule) => rule.name !== name);
    await replace(policy, now.etag, same < 0 ? left : [...left.slice(0, same), before.rules[same]!, ...left.slice(same)]);
  };
}

/** Enable or disable an account, be it of the fleet or of the proxy alone. */
export async function enable({ account, proxy }: Subject, enabled: boolean): Promise<void> {
  const body = { enabled } as never;
  const { accounts } = await data(api.GET("/api/v1/accounts", { params: { query: { q: account, proxy: proxy?.id, limit: 1000 } } }));
  const found = accounts.find(({ username }) => username === account);
  if (found?.inline) await data(api.PATCH("/api/v1/proxies/{proxy_id}/accounts/{username}", { params: { path: { proxy_id: found.proxies.ids?.[0] ?? "", username: account } }, body }));
  else await data(api.PATCH("/api/v1/accounts/{account_id}", { params: { path: { account_id: found?.id ?? account } }, body }));
}

async function made(): Promise<string> {
  if (!(await namesOf("policies", new AbortController().signal)).includes(EVERYWHERE)) {
    await data(api.POST("/api/v1/policies", { body: { name: EVERYWHERE, description: t("intervention.everywhere"), rules: [] } as never }));
  }
  await data(api.PATCH("/api/v1/settings", { body: { proxy: { policy: EVERYWHERE } } as never }));
  return EVERYWHERE;
}

async function rulesOf(policy: string): Promise<{ rules: Rule[]; etag: string | null }> {
  const found = await tagged(api.GET("/api/v1/policies/{policy_id}", { params: { path: { policy_id: policy } } }));
  return { rules: found.data.policy.rules, etag: found.etag };
}

const replace = (policy: string, etag: string | null, rules: readonly (Rule | Schemas["RuleFirst"])[]): Promise<unknown> =>
  data(api.PATCH("/api/v1/policies/{policy_id}", { params: { path: { policy_id: policy }, header: ifMatch(etag) }, body: { rules } as never }));

/** Eight digits that tell long names apart (FNV-1a). */
function digest(text: string): string {
  let sum = 0x811c9dc5;
  for (const unit of new TextEncoder().encode(text)) sum = Math.imul(sum ^ unit, 0x01000193);
  return (sum >>> 0).toString(16).padStart(8, "0");
}
