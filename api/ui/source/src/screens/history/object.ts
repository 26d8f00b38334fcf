/** What revisions did to one object, and what stands in the way of an undo. */
import { ApiError } from "../../api/errors";
import { t } from "../../texts";

interface Revision {
  objects: readonly { id: string; action: "create" | "update" | "delete"; fields: readonly string[] }[];
}
type Document = Record<string, unknown> | null;

/** Fields that are named. */
const NAMED = 6;
/** The times of a change, which are no change. */
const BOOKKEEPING = new Set(["updated_at", "last_used", "last_login"]);

/** `port, tags`; or that it was created or deleted. */
export function objectWords(revision: Revision, id: string): string {
  const found = revision.objects.find((each) => each.id === id);
  if (!found) return "";
  if (found.action !== "update") return t(`history.action.${found.action}`);
  const rest = found.fields.length - NAMED;
  return [found.fields.slice(0, NAMED).join(", "), ...(rest > 0 ? [t("common.bulk.more", { n: rest })] : [])].join(", ");
}

/** The object before and after a revision; null where the state before it is no longer kept. */
export async function states(at: (revision: number) => Promise<{ document?: Document }>, revision: number): Promise<{ before: object; after: object } | null> {
  const after = plain((await at(revision)).document);
  if (revision === 1) return { before: {}, after };
  try {
    return { before: plain((await at(revision - 1)).document), after };
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

function plain(document: Document | undefined): object {
  return Object.fromEntries(Object.entries(document ?? {}).filter(([name]) => !BOOKKEEPING.has(name)));
}

/** A field without the collection and the id of its object, whom the error names. */
export function fieldWords(field: string): string {
  return field.replace(/^[a-z_]+\.[a-z]+_[0-9a-f]+\.?/, "").replace(/^settings\./, "");
}

/** The revisions that an error names: `by revision 9 (greta)`, `by the revisions 12 (paul), 9 (greta)`. */
export function laterRevisions(error: string): number[] {
  const named = /by (?:the )?revisions? (.*?);/.exec(error)?.[1] ?? "";
  return [...named.matchAll(/(?:^|, )([1-9]\d{0,14}) \(/g)].map((each) => Number(each[1]));
}
