/** What a revision changed, in words. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export const KINDS = ["proxy", "account", "plan", "list", "pool", "policy", "user", "api_key", "webhook", "settings"] as const;
export type Kind = (typeof KINDS)[number];

/** `office: port, tags · 3 more`. */
export function changedWords(revision: Schemas["RevisionView"]): string {
  const { create, update, delete: removed } = revision.summary;
  const named = revision.objects.slice(0, 3).map(({ kind, name, id, action, fields }) => {
    const words = action === "update" ? fields.slice(0, 4).join(", ") : t(`history.action.${action}`);
    return `${t(`history.kind.${kind}`)} ${name ?? id}: ${words}`;
  });
  const more = create + update + removed - named.length;
  return [...named, ...(more > 0 ? [t("history.more", { n: more })] : [])].join(" · ");
}
