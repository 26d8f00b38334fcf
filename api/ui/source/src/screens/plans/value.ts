/** A plan as its form has it. */
import { changes } from "../../lib/differences";
import { blankRules, rulesOf, type Plan, type RulesValue } from "../accounts/rules";

export interface PlanValue extends RulesValue {
  name: string;
  description: string;
  self_service: { password: boolean; credentials: boolean };
}

export const blank = (): PlanValue => ({ ...blankRules(), name: "", description: "", self_service: { password: false, credentials: false } });

export function valueOf(plan: Plan): PlanValue {
  const { name, description, self_service } = plan;
  return structuredClone({ ...rulesOf(plan as RulesValue), name, description, self_service });
}

/** The body of a create or a PATCH; quota and schedule are whole. */
export function bodyOf(before: PlanValue, after: PlanValue): Record<string, unknown> {
  const found: Record<string, unknown> = { ...changes(before, after) };
  if (found.quota) found.quota = after.quota;
  if (found.schedule) found.schedule = after.schedule;
  return found;
}
