/** All that judges a request of a proxy, in the order in which it decides (docs/policies.md), and which part of it decided. */
import type { Explanation } from "../../policies/decision";

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
