/** A policy: its requests, and how its form has it. What this page knows no field for is kept as it is. */
import { api, data, tagged, type Schemas } from "../../api/client";
import type { RulesValue } from "../accounts/rules";
import { linesOf } from "../../lib/format";
import { fieldLines, fieldsOf, ifMatch, type ObjectKind } from "../objects/kind";
import type { Check } from "../objects/tls-name";
import { portOf } from "../proxies/form/value";

export const RULE_LIMITS = ["bandwidth_in", "bandwidth_out", "connections", "requests_per_minute"] as const;
export type Policy = Schemas["PolicyView"];
export type Listed = Schemas["ListedPolicy"];
type Rule = Schemas["RuleView"];
type Plain = Record<string, unknown>;

export interface RuleValue {
  /** Of this row alone: it stays the same while the rule is moved and renamed. */
  key: string;
  name: string;
  mode: Rule["mode"];
  accounts: string[];
  destinations: string[];
  clients: string[];
  /** Ports of the proxy, and ranges of them. */
  listen_ports: string[];
  /** Names and ids of proxies, and `tag:` with a tag of theirs. */
  proxies: string[];
  /** The moment of its end (ISO 8601); empty: it has none. */
  until: string;
  methods: string[];
  paths: string[];
  /** Not plain HTTP. */
  tunnel: boolean;
  schedule: RulesValue["schedule"];
  /** Empty: the usual way of the proxy. */
  use: string;
  reason: string;
  /** Empty: as the proxy says. */
  tls_name: Check | "";
  /** `Name: value`, one a line. */
  set: string;
  remove: string[];
  /** `country=de`, one a line: parameters of the user name. */
  params: string;
  /** Addresses and networks that connections leave from. */
  egress: string[];
  limits: Record<(typeof RULE_LIMITS)[number], number | null>;
  /** Fields that the form has no input for. */
  others: { match: Plain; action: Plain };
}

export interface PolicyValue {
  name: string;
  description: string;
  rules: RuleValue[];
}

const NO_LIMITS = (): RuleValue["limits"] => ({ bandwidth_in: null, bandwidth_out: null, connections: null, requests_per_minute: null });

let made = 0;
const key = () => `rule-${++made}`;

export const blankRule = (name: string): RuleValue => ({
  key: key(), name, mode: "enforce", accounts: [], destinations: [], clients: [], listen_ports: [], proxies: [], until: "", methods: [], paths: [], tunnel: false, schedule: null,
  use: "deny", reason: "", tls_name: "", set: "", remove: [], params: "", egress: [], limits: NO_LIMITS(), others: { match: {}, action: {} },
});

export const copyOf = (rule: RuleValue, name: string): RuleValue => ({ ...structuredClone(rule), key: key(), name });

export function ruleValue(rule: Rule): RuleValue {
  const { accounts, destinations, clients, listen_ports, proxies, until, methods, paths, tunnel, schedule, params, ...match } = rule.match;
  const { use, reason, tls_name, headers, egress, limits, ...action } = rule.action;
  return {
    ...blankRule(rule.name), mode: rule.mode,
    accounts: accounts ?? [], destinations: destinations ?? [], clients: clients ?? [], listen_ports: (listen_ports ?? []).map(String), proxies: proxies ?? [], until: until ?? "", methods: methods ?? [], paths: paths ?? [], tunnel: tunnel ?? false,
    schedule: (schedule as RulesValue["schedule"]) ?? null, use: use ?? "", reason: reason ?? "", tls_name: tls_name ?? "",
    set: fieldLines(headers?.set ?? {}), remove: headers?.remove ?? [],
    params: Object.entries(params ?? {}).map(([name, value]) => `${name}=${value}`).join("\n"), egress: egress ?? [], limits: { ...NO_LIMITS(), ...limits },
    others: { match, action },
  };
}

/** What is empty is left out: it matches everything, or does nothing. */
const filled = (fields: Plain): Plain => Object.fromEntries(Object.entries(fields).filter(([, value]) => (Array.isArray(value) ? value.length > 0 : value !== "" && value !== null && value !== undefined)));

export function ruleBody(rule: RuleValue): Plain {
  const { accounts, destinations, clients, proxies, until, methods, paths, tunnel, schedule, use, reason, egress, others } = rule;
  const listen_ports = rule.listen_ports.map(portOf);
  const headers = use === "deny" ? {} : filled({ set: rule.set.trim() ? fieldsOf(rule.set) : null, remove: rule.remove });
  const limits = filled(rule.limits);
  const params = Object.fromEntries(linesOf(rule.params).map((line) => [line.split("=")[0]!.trim(), line.split("=").slice(1).join("=").trim()]));
  return {
    name: rule.name,
    match: filled({ accounts, destinations, clients, listen_ports, proxies, until, methods, paths, tunnel: tunnel || null, params: rule.params.trim() ? params : null, schedule, ...others.match }),
    action: filled({ use, reason: use === "deny" ? reason : "", headers: Object.keys(headers).length ? headers : null, tls_name: use === "deny" ? "" : rule.tls_name, egress: use === "deny" ? [] : egress, limits: use !== "deny" && Object.keys(limits).length ? limits : null, ...others.action }),
    mode: rule.mode,
  };
}

export const policies: ObjectKind<PolicyValue, Policy> = {
  area: "policies",
  blank: () => ({ name: "", description: "", rules: [] }),
  async get(id, signal) {
    const found = await tagged(api.GET("/api/v1/policies/{policy_id}", { params: { path: { policy_id: id } }, signal }));
    return { object: found.data.policy, warnings: found.data.warnings, etag: found.etag };
  },
  create: async (body) => (await data(api.POST("/api/v1/policies", { body: body as never }))).policy.id,
  change: (id, etag, body) => data(api.PATCH("/api/v1/policies/{policy_id}", { params: { path: { policy_id: id }, header: ifMatch(etag) }, body: body as never })),
  remove: (id) => data(api.DELETE("/api/v1/policies/{policy_id}", { params: { path: { policy_id: id } } })),
  valueOf: ({ name, description, rules }) => ({ name, description, rules: rules.map(ruleValue) }),
  bodyOf(before, after) {
    const found: Plain = {};
    if (before.name !== after.name) found.name = after.name;
    if (before.description !== after.description) found.description = after.description;
    if (JSON.stringify(before.rules) !== JSON.stringify(after.rules) || before.name === "") found.rules = after.rules.map(ruleBody);
    return found;
  },
  named: ({ rules }, field) => field.replace(/^rules\[(\d+)\]\.?/, (whole, index) => (rules[Number(index)] ? `${rules[Number(index)]!.name} · ` : whole)),
  shown: ({ name, description, rules }) => ({ name, description, rules: rules.map(ruleBody) }),
};

/** The list with the entry at `from` moved to `to`. */
export function moved<T>(list: readonly T[], from: number, to: number): T[] {
  const rest = list.filter((_, index) => index !== from);
  return [...rest.slice(0, to), list[from]!, ...rest.slice(to)];
}

/** Where an entry comes to that is dropped at `y`, by the middles of all of them: those above it stay above. */
export function placeOf(y: number, from: number, middles: readonly number[]): number {
  return middles.filter((middle, index) => index !== from && middle < y).length;
}
