/** A plan: its requests, and how its form has it. */
import { api, data, tagged } from "../../api/client";
import { changes } from "../../lib/differences";
import { blankRules, rulesOf, type Plan, type RulesValue } from "../accounts/rules";
import { ifMatch, type ObjectKind } from "../objects/kind";

export interface PlanValue extends RulesValue {
  name: string;
  description: string;
  /** The name of one, empty for none. */
  policy: string;
  /** Addresses and networks that its accounts leave from; empty: those of the proxy. */
  egress: string[];
  /** Whether refusals name policy, rule and list. */
  disclose: boolean;
  self_service: { password: boolean; credentials: boolean };
}

const blank = (): PlanValue => ({ ...blankRules(), name: "", description: "", policy: "", egress: [], disclose: true, self_service: { password: false, credentials: false } });

function valueOf(plan: Plan): PlanValue {
  const { name, description, disclose, self_service } = plan;
  const policy = plan.policy ?? "";
  const egress = plan.egress ?? [];
  return structuredClone({ ...rulesOf(plan as RulesValue), name, description, policy, egress, disclose, self_service });
}

/** The body of a create or a PATCH; quota and schedule are whole. */
function bodyOf(before: PlanValue, after: PlanValue): Record<string, unknown> {
  const found: Record<string, unknown> = { ...changes(before, after) };
  if (found.quota) found.quota = after.quota;
  if (found.policy === "") found.policy = null;
  if (found.egress) found.egress = after.egress.length ? after.egress : null;
  if (found.schedule) found.schedule = after.schedule;
  return found;
}

export const plans: ObjectKind<PlanValue, Plan> = {
  area: "plans",
  blank,
  async get(plan_id, signal) {
    const found = await tagged(api.GET("/api/v1/plans/{plan_id}", { params: { path: { plan_id } }, signal }));
    return { object: found.data.plan, warnings: [], etag: found.etag };
  },
  create: async (body) => (await data(api.POST("/api/v1/plans", { body: body as never }))).plan.id,
  change: (plan_id, etag, body) => data(api.PATCH("/api/v1/plans/{plan_id}", { params: { path: { plan_id }, header: ifMatch(etag) }, body: body as never })),
  remove: (plan_id) => data(api.DELETE("/api/v1/plans/{plan_id}", { params: { path: { plan_id } } })),
  valueOf,
  bodyOf,
};
