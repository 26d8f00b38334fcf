/** The explanation of a decision as steps: what was passed, what decided, and what was not reached any more. */
import type { Schemas } from "../../../api/client";

export type Explanation = Schemas["Explanation"];

/** In the order in which a request comes to them. */
export const STAGES = ["client", "user", "account", "credential", "policy", "name", "resolve", "egress_guard", "address", "tls_name"] as const;
export type Stage = (typeof STAGES)[number];
export type Outcome = "passed" | "assumed" | "denied" | "reported" | "open";

export interface Step {
  stage: Stage;
  outcome: Outcome;
  /** The entry or the sentence that decided here; empty without one. */
  rule: string;
}
interface Configured {
  auth: { enabled: boolean };
  upstreams: readonly unknown[];
}

/** Those stages that there are for this request, each with what came out of it. */
export function steps(found: Explanation, proxy: Configured): Step[] {
  const there = STAGES.filter((stage) => stage === found.stage || applies(stage, found, proxy));
  const at = there.indexOf(found.stage as Stage);
  return there.map((stage, index) => ({ stage, outcome: outcome(found, stage, index, at), rule: stage === "tls_name" ? found.tls_name.rule : index === at ? found.rule : "" }));
}

function applies(stage: Stage, { account, credential, target, rules, tls_name }: Explanation, { auth, upstreams }: Configured): boolean {
  const literal = isAddress(target.host);
  if (stage === "user") return auth.enabled;
  if (stage === "account") return account !== null;
  if (stage === "credential") return credential !== null;
  if (stage === "policy") return rules.length > 0;
  if (stage === "resolve") return !literal && upstreams.length === 0;
  if (stage === "egress_guard" || stage === "address") return literal || upstreams.length === 0;
  if (stage === "tls_name") return tls_name.port_checked && tls_name.check !== "off";
  return true;
}

function outcome({ decision, reason, assumed, tls_name }: Explanation, stage: Stage, index: number, at: number): Outcome {
  if (stage === "user" && assumed.length > 0 && (decision === "allow" || index < at)) return "assumed";
  if (stage === "tls_name" && nameDecides({ decision, tls_name })) return "assumed";
  if (decision === "allow") return index === at && isReported(reason) ? "reported" : "passed";
  if (index === at) return "denied";
  return index < at ? "passed" : "open";
}

/** Whether it is allowed if the name in the handshake is right, which was not asked about. */
export const nameDecides = ({ decision, tls_name: { check, kind, port_checked } }: Pick<Explanation, "decision" | "tls_name">): boolean => decision === "allow" && port_checked && kind === null && (check === "match" || check === "allowed");

/** Whether it is allowed only since the proxy reports and does not enforce. */
export const isReported = (reason: string): boolean => reason.startsWith("reported:");

/** An IP address, not a name; an IPv6 address has no brackets here. */
export const isAddress = (host: string): boolean => host.includes(":") || /^\d+(\.\d+){3}$/.test(host);

/** All that judges a request, in the order in which it decides (docs/policies.md). */
export const ORDER = ["clients", "sign_in", "limits", "egress_guard", "account", "everywhere", "policies", "policy", "destinations", "tls_name"] as const;
export type Part = (typeof ORDER)[number];
const PART_OF: Partial<Record<string, Part>> = { client: "clients", user: "sign_in", account: "sign_in", credential: "sign_in", egress_guard: "egress_guard", tls_name: "tls_name" };

/** Which of them decided; null where it is another stage, or a policy, whose rule is marked. */
export function partOf({ stage, rule }: Pick<Explanation, "stage" | "rule">): Part | null {
  if (stage === "name" || stage === "address") return /^(account|credential)\b/.test(rule) ? "account" : "destinations";
  return PART_OF[stage] ?? null;
}

export const LISTS = ["deny_clients", "allow_clients", "deny_destinations", "allow_destinations"] as const;
export type List = (typeof LISTS)[number];

/** Which entry of the proxy's own rules `access.deny_destinations[2] *.example.com` is; null for another text. */
export function entryOf(rule: string): { list: List; index: number } | null {
  const found = /^access\.(\w+)\[(\d+)\]/.exec(rule);
  return found && isList(found[1]!) ? { list: found[1], index: Number(found[2]) } : null;
}

const isList = (name: string): name is List => (LISTS as readonly string[]).includes(name);
