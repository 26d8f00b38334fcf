/** What becomes of a request, step by step: as its record says, or as the rules would have it. */
import type { Schemas } from "../../api/client";
import { bare, isReported, STEPS, stepOf, type Step } from "../../lib/reasons";
import { url } from "../../lib/router.svelte";
import { t } from "../../texts";
import { outcomeOf } from "../logs/outcome";
import { ruleText } from "../objects/tls-name";

export type Explanation = Schemas["Explanation"];
type Entry = Schemas["LogEntry"];
type Rule = Schemas["ExplainedRule"];

/** What is asked about, as addresses have it: texts are empty where there is nothing. */
export interface Asked {
  /** Of one proxy; else of all. */
  proxy: string;
  target: string;
  client: string;
  account: string;
  credential: string;
  method: string;
  tls_name: string;
  /** Whether the handshake has no name. */
  nameless: boolean;
  at: string;
  /** What a record said of it. */
  was: string;
}

/** As the API takes it. */
export function questionOf({ target, client, account, credential, method, tls_name, nameless, at }: Asked) {
  const given = { target, client_ip: client || "127.0.0.1", user: account, credential, method, tls_name, at };
  return { ...Object.fromEntries(Object.entries(given).filter(([, value]) => value)), ...(nameless ? { tls_name: "" } : {}) };
}

/** Whether it is a request of plain HTTP, not a tunnel. */
export const isPlain = (target: string): boolean => /^http:\/\//i.test(target.trim());

/** Where a request can be tried. */
export const tryUrl = ({ nameless, ...asked }: Partial<Asked>): string => url("/rules/try", { ...asked, nameless: nameless ? 1 : "" });

export type StepOutcome = "passed" | "assumed" | "denied" | "failed" | "reported" | "ended" | "open";
export interface DecisionStep {
  step: Step;
  outcome: StepOutcome;
  /** What is known of it, such as the address or the upstream; empty without. */
  text: string;
  /** The entry that decided here, and its screen. */
  rule: string;
  href: string | null;
}

/** What is known of a request. */
interface Course {
  /** Where it ended, and how. */
  at: Step;
  ending: StepOutcome;
  /** Steps that it has passed in another way than by what is known. */
  marked: Partial<Record<Step, StepOutcome>>;
  texts: Partial<Record<Step, readonly (string | number | null)[]>>;
  decided: Step;
  rule: string;
  href: string | null;
}

/** Steps that are there only where something is known of them. */
const OPTIONAL: readonly Step[] = ["sign_in", "limits"];

function along({ at, ending, marked, texts, decided, rule, href }: Course): DecisionStep[] {
  const textOf = (step: Step) => (texts[step] ?? []).filter(Boolean).join(" · ");
  const there = STEPS.filter((step) => !OPTIONAL.includes(step) || step === at || step in marked || textOf(step));
  return there.map((step, index): DecisionStep => {
    const left = there.indexOf(at) - index;
    if (left < 0) return { step, outcome: "open", text: "", rule: "", href: null };
    return { step, outcome: left > 0 ? (marked[step] ?? "passed") : ending, text: textOf(step), rule: step === decided ? ruleText(rule) : "", href };
  });
}

/** Of a record, as it says itself: rules may be others by now. */
export function stepsOfRecord(entry: Entry): DecisionStep[] {
  const { reason, parent, rule } = entry;
  const outcome = outcomeOf(entry);
  const stop = stepOf({ ...entry, reason: bare(reason) }, parent !== "");
  const reported = isReported(reason) ? stop : undefined;
  const at = (outcome === "refused" || outcome === "failed" ? stop : undefined) ?? "target";
  return along({
    at,
    ending: outcome === "refused" ? "denied" : outcome !== "passed" ? "failed" : reason && !isReported(reason) ? "ended" : "passed",
    marked: reported ? { [reported]: "reported" } : {},
    texts: {
      listener: [entry.client_ip],
      sign_in: [entry.user, entry.credential],
      policy: [entry.tls_name],
      exit: [parent ? t("logs.step.through", { upstream: parent }) : t("logs.step.direct"), entry.source_address],
      target: [entry.country, entry.asn, entry.status_code],
    },
    decided: reported ?? at,
    rule,
    href: placeOf({ rule, stage: "", account: null }, entry.proxy_id),
  });
}

/** Of a request that was asked about. */
export function stepsOf(found: Explanation, asked: Pick<Asked, "client" | "account" | "credential" | "proxy">): DecisionStep[] {
  const { decision, reason, stage, assumed, upstreams, source, target } = found;
  const denied = decision === "deny";
  const stop = stepOf({ reason: bare(reason) }, upstreams !== null || stage === "upstreams");
  const at = (denied ? stop : undefined) ?? "target";
  return along({
    at,
    ending: !denied ? "passed" : at === "exit" || at === "target" ? "failed" : "denied",
    marked: {
      ...(assumed.length ? { sign_in: "assumed" } : {}),
      ...(nameDecides(found) ? { policy: "assumed" } : {}),
      ...(stop && isReported(reason) ? { [stop]: "reported" } : {}),
    },
    texts: {
      listener: [asked.client],
      sign_in: [asked.account, asked.credential],
      exit: upstreams ? [t("logs.step.through", { upstream: upstreams.chosen ?? upstreams.pool ?? "–" }), upstreams.chosen && upstreams.pool] : [t("logs.step.direct"), source?.ipv4 ?? null, source?.ipv6 ?? null],
      target: [`${target.host}:${target.port}`],
    },
    decided: denied ? at : (stop ?? (stage === "user" ? "sign_in" : "policy")),
    rule: found.rule,
    href: placeOf(found, asked.proxy),
  });
}

/** The screen of what decided, such as `policy office[0] no ads`; null where there is none. */
export function placeOf({ rule, stage, account }: Pick<Explanation, "rule" | "stage" | "account">, proxy: string): string | null {
  const policy = /^policy (.+?)(\[\d+\]|:)/.exec(rule)?.[1];
  if (policy) return url(`/policies/${policy}`);
  if (/^(account|credential|auth)/.test(rule)) return account ? url(`/accounts/${account}${rule.startsWith("credential") ? "/credentials" : ""}`) : url(`/proxies/${proxy}/accounts`);
  if (stage === "egress_guard") return url("/settings");
  return /^(access|tls_name|username_params)\b/.test(rule) ? url(`/proxies/${proxy}/configuration`) : null;
}

/** Whether it is allowed if the name in the handshake is right, which was not asked about. */
export const nameDecides = ({ decision, tls_name: { check, kind, port_checked } }: Pick<Explanation, "decision" | "tls_name">): boolean => decision === "allow" && port_checked && kind === null && (check === "match" || check === "allowed");

/** Stages before policies: a request that ends there has come to no rule. */
const BEFORE = new Set(["client", "user", "account", "credential"]);

/** The first enforced rule of each policy that matches, until one says which way the request goes. */
export function appliedBy({ decision, stage, rules }: Pick<Explanation, "decision" | "stage" | "rules">): Set<Rule> {
  const found = new Set<Rule>();
  if (decision === "deny" && BEFORE.has(stage)) return found;
  const done = new Set<string>();
  for (const rule of rules) {
    if (done.has(rule.policy) || rule.mode === "report" || rule.matches === "no") continue;
    if (rule.matches === "unknown") break;
    found.add(rule);
    done.add(rule.policy);
    if (rule.use) break;
  }
  return found;
}
