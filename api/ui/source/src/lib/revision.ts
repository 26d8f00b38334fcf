/** What a revision changed, in words. */
import type { Schemas } from "../api/client";
import { t } from "../texts";

export const KINDS = ["proxy", "account", "plan", "list", "pool", "policy", "user", "api_key", "webhook", "settings", "node"] as const;
export type Kind = (typeof KINDS)[number];
type Revision = Pick<Schemas["RevisionView"], "summary" | "kinds" | "objects">;

/** Objects that are named; of more there is the number. */
const NAMED = 3;
/** Objects of a revision that the API names at most. */
const LISTED = 20;
const ACTIONS = ["create", "update", "delete"] as const;

/** `Proxy office: port, tags`; of many `990 accounts created`. */
export function changedWords(revision: Revision): string {
  const { summary, objects } = revision;
  const total = ACTIONS.reduce((sum, action) => sum + summary[action], 0);
  const all = objects.length === Math.min(total, LISTED); // else the list is of the one that a filter names
  if (total > NAMED && all) return numberWords(revision, total);
  const named = objects.slice(0, NAMED).map(({ kind, name, id, action, fields }) => {
    const words = action === "update" ? fields.slice(0, 4).join(", ") : t(`history.action.${action}`);
    return `${t(`history.kind.${kind}`)} ${name ?? id}: ${words}`;
  });
  const more = total - named.length;
  return [...named, ...(more > 0 ? [t("common.bulk.more", { n: more })] : [])].join(" · ");
}

/** By kind and action where these numbers are known, else by action with the kinds behind. */
function numberWords({ summary, kinds, objects }: Revision, total: number): string {
  const numbers = (kind: Kind, action: (typeof ACTIONS)[number]) =>
    kinds.length === 1 ? summary[action] : objects.filter((each) => each.kind === kind && each.action === action).length;
  if (kinds.length === 1 || objects.length === total) {
    const pairs = kinds.flatMap((kind) => ACTIONS.map((action) => ({ kind, action, n: numbers(kind, action) })));
    return pairs.filter(({ n }) => n).map(({ kind, action, n }) => `${t(`history.many.${kind}`, { n })} ${t(`history.action.${action}`)}`).join(" · ");
  }
  const words = ACTIONS.filter((action) => summary[action]).map((action) => `${summary[action]} ${t(`history.action.${action}`)}`);
  return `${words.join(" · ")}: ${kinds.map((kind) => t(`history.kind.${kind}`)).join(", ")}`;
}
