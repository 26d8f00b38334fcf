/** Which rules of policies hold for a request that was explained. */
import type { Schemas } from "../../api/client";

export type Explanation = Schemas["Explanation"];
type Rule = Schemas["ExplainedRule"];

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
