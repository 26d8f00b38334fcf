/** What the service says is wrong with a document, by the names of its objects. */
import { tMaybe } from "../../texts";

export interface WrongObject {
  /** Its kind and name; empty where the error is not about an object. */
  object: string;
  field: string;
  error: string;
}

const KINDS: Record<string, string> = { proxies: "proxy", users: "user", webhooks: "webhook", plans: "plan", accounts: "account", lists: "list", pools: "pool", policies: "policy" };

/** `fields` are the errors by their paths: `proxies[0].port`. */
export function wrongObjects(fields: Record<string, string>, document: object): WrongObject[] {
  return Object.entries(fields).map(([path, error]) => {
    const found = /^([a-z]+)\[([0-9]+)\]\.?(.*)$/s.exec(path);
    if (!found) return { object: "", field: path, error };
    const [, section = "", index = "", field = ""] = found;
    const kind = KINDS[section] ?? section;
    const entry: unknown = (document as Record<string, unknown[] | undefined>)[section]?.[Number(index)];
    return { object: `${tMaybe(`history.kind.${kind}`, kind)} ${nameOf(entry) ?? `${section}[${index}]`}`, field, error };
  });
}

function nameOf(entry: unknown): string | null {
  if (typeof entry !== "object" || entry === null) return null;
  const { name, username } = entry as Record<string, unknown>;
  return typeof name === "string" ? name : typeof username === "string" ? username : null;
}
