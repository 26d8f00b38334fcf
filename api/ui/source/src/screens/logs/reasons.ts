/** What became of a request: its reason in words, whose error it was, and the steps that it came through. */
import type { Kind } from "../../components/states";
import type { IconName } from "../../components/icons";
import { t, tMaybe } from "../../texts";
import { ruleText } from "../objects/tls-name";
import { isReported } from "../proxies/rules/explain";
import type { Entry } from "./query";

/** As the API has them: the proxy refused it, it or what is behind it failed, or the origin responded with an error. */
export const OUTCOMES = ["passed", "refused", "failed", "origin_error"] as const;
export type Outcome = (typeof OUTCOMES)[number];
/** Our refusals are red; errors of others are not. The icons say it without colours. */
export const LOOKS: Record<Outcome, { kind: Kind; icon: IconName | null }> = {
  passed: { kind: "good", icon: null },
  refused: { kind: "bad", icon: "cross" },
  failed: { kind: "warn", icon: "warning" },
  origin_error: { kind: "info", icon: "external" },
};
type Reasoned = Pick<Entry, "reason" | "status_code">;

const REPORTED = "reported:";

/** By what the service itself goes (`outcome_of`). */
export function outcomeOf({ reason, status_code, level }: Reasoned & Pick<Entry, "level">): Outcome {
  const own = reason !== "" && !isReported(reason);
  if (status_code < 400) return own && level === "warning" ? "refused" : "passed";
  return own ? (status_code < 500 ? "refused" : "failed") : "origin_error";
}

/** `denied by a policy`; the word itself where there is no text for it, empty without a reason. */
export function reasonText({ reason, status_code, user = "" }: Reasoned & { user?: string }): string {
  if (isReported(reason)) return t("reason.reported", { reason: reasonText({ reason: reason.slice(REPORTED.length), status_code }) });
  if (reason === "http_request_denied" && status_code === 403) return t("reason.http_request_denied.upstream");
  if (reason === "http_request_denied" && user) return t("reason.http_request_denied.user");
  return tMaybe(`reason.${reason}`, reason);
}

/** In the order in which a request comes to them. */
export const STAGES = ["client", "account", "rules", "guard", "way", "tls_name", "response"] as const;
export type Stage = (typeof STAGES)[number];
export type StepOutcome = "passed" | "denied" | "reported" | "failed" | "ended" | "open";
export interface Step {
  stage: Stage;
  outcome: StepOutcome;
  /** What is known of it, such as the address or the upstream; empty without. */
  text: string;
  /** The entry that decided here. */
  rule: string;
}

/** Where a reason stops a request; what is in none of them came to its response. */
const STOPS: readonly (readonly [Stage, RegExp])[] = [
  ["account", /^(account_|credential_|outside_schedule|auth_backend|accounts_|unknown_param|client_certificate_unmatched|http_request_denied)/],
  ["client", /^(client_|proxy_protocol_|tls_(not|certificate|handshake)|connection_limit_reached|http_request_error)/],
  ["rules", /^(policy_denied|destination_(not_allowed|denied)|rule_)/],
  ["guard", /^destination_ip_prohibited/],
  ["tls_name", /^tls_name_denied/],
  ["way", /^(dns_|connection_(refused|timeout)|destination_|no_|proxy_(loop|configuration|internal))/],
];

export function stageOf({ reason, status_code }: Reasoned): Stage {
  if (reason === "http_request_denied" && status_code === 403) return "way";
  return STOPS.find(([, words]) => words.test(reason))?.[0] ?? "response";
}

/** The steps that there are for this record, as it says itself: rules may be others by now. */
export function stepsOf(entry: Entry): Step[] {
  const outcome = outcomeOf(entry);
  const reported = isReported(entry.reason) ? stageOf({ reason: entry.reason.slice(REPORTED.length), status_code: 0 }) : null;
  const stop = outcome === "refused" || outcome === "failed" ? stageOf(entry) : "response";
  const there = STAGES.filter((stage) => stage === stop || stage === reported || applies(stage, entry));
  const at = there.indexOf(stop);
  return there.map((stage, index): Step => {
    const rule = stage === (reported ?? stop) ? ruleText(entry.rule) : "";
    if (index > at) return { stage, outcome: "open", text: "", rule: "" };
    return { stage, outcome: index === at ? ending(entry, outcome) : stage === reported ? "reported" : "passed", text: textOf(stage, entry), rule };
  });
}

function applies(stage: Stage, { user, tls_name }: Entry): boolean {
  if (stage === "account") return user !== "";
  return stage === "tls_name" ? tls_name !== "" : true;
}

function ending({ reason }: Entry, outcome: Outcome): StepOutcome {
  if (outcome === "refused") return "denied";
  if (outcome !== "passed") return "failed";
  return reason !== "" && !isReported(reason) ? "ended" : "passed";
}

function textOf(stage: Stage, entry: Entry): string {
  const texts: Record<Stage, (string | number)[]> = {
    client: [entry.client_ip],
    account: [entry.user, entry.credential],
    rules: [],
    guard: [entry.country, entry.asn],
    way: [entry.parent ? t("logs.step.through", { upstream: entry.parent }) : t("logs.step.direct"), entry.source_address],
    tls_name: [entry.tls_name],
    response: [entry.status_code],
  };
  return texts[stage].filter(Boolean).join(" · ");
}
