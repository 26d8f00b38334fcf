/** A rule in a few words. */
import { t } from "../../texts";
import { linesOf, moment } from "../../lib/format";
import { limitText } from "../accounts/rules";
import { RULE_LIMITS, type RuleValue } from "./policy";

const FEW = 3;
/** In place of a method. */
const ANY = "*";

/** `tag:ci · *.pypi.example, list:mirrors · GET`, or that everything matches. */
export function summaryOf(rule: Pick<RuleValue, "accounts" | "destinations" | "clients" | "listen_ports" | "proxies" | "until" | "methods" | "paths" | "tunnel" | "params" | "schedule">): string {
  const methods = rule.methods.includes(ANY) ? [t("policies.http.short")] : rule.methods;
  const parts = [rule.accounts, rule.destinations, methods, rule.paths, rule.clients, rule.listen_ports, rule.proxies].filter((each) => each.length).map(brief);
  if (rule.tunnel) parts.push(t("policies.tunnel.short"));
  if (rule.params.trim()) parts.push(brief(linesOf(rule.params)));
  if (rule.schedule) parts.push(t("policies.schedule.short"));
  const matched = parts.join(" · ") || t("policies.everything");
  return rule.until ? `${matched} · ${t(Date.parse(rule.until) <= Date.now() ? "policies.until.over" : "policies.until.short", { time: moment(rule.until) })}` : matched;
}

/** `1 MB/s to clients`: its limits, each in a few words. */
export function limitsOf({ use, limits }: Pick<RuleValue, "use" | "limits">): string[] {
  return use === "deny" ? [] : RULE_LIMITS.filter((key) => limits[key]).map((key) => t(`policies.limit.${key}`, { n: limits[key]!, value: limitText(key, limits[key]!) }));
}

function brief(entries: readonly string[]): string {
  const rest = entries.length - FEW;
  return entries.slice(0, FEW).join(", ") + (rest > 0 ? ` +${rest}` : "");
}

/** What it does with a request, in a word and its colour. */
export function actionOf({ use }: Pick<RuleValue, "use">): { word: string; kind: "bad" | "good" | "accent" | "neutral" } {
  if (use === "deny") return { word: t("policies.short.deny"), kind: "bad" };
  if (use === "direct") return { word: t("policies.short.direct"), kind: "good" };
  if (use) return { word: use, kind: "accent" };
  return { word: t("policies.short.default"), kind: "neutral" };
}
