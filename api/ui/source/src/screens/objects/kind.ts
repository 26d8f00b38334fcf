/** What the screens of lists, pools, policies and plans have in common: objects with a name, of which one is read, saved, deleted. */
import type { Schemas } from "../../api/client";
import { linesOf } from "../../lib/format";

export type Warned = Schemas["Warned"];

/** What every form of an object has. */
export interface ObjectValue {
  name: string;
  description: string;
}

/** An object as the API has it. */
export interface Stored<O> {
  object: O;
  warnings: readonly Warned[];
  etag: string | null;
}

/** One kind of object: its requests, and how its form has it. */
export interface ObjectKind<V extends ObjectValue, O> {
  area: "lists" | "policies" | "pools" | "plans";
  get(id: string, signal: AbortSignal | null): Promise<Stored<O>>;
  /** Returns the id. */
  create(body: Record<string, unknown>): Promise<string>;
  change(id: string, etag: string | null, body: Record<string, unknown>): Promise<unknown>;
  remove(id: string): Promise<unknown>;
  blank(): V;
  valueOf(object: O): V;
  /** The body of a create (`before` is a blank one) or of a PATCH. */
  bodyOf(before: V, after: V): Record<string, unknown>;
  /** What a warning is about, for people: of `rules[1].match.paths` the name of the rule. */
  named?(object: O, field: string): string;
  /** The form's value as the review shows it. */
  shown?(value: V): unknown;
}

export const ifMatch = (etag: string | null): Record<string, string> => (etag ? { "If-Match": etag } : {});

/** Header fields as lines: `Name: value`. */
export const fieldLines = (fields: Record<string, string>): string => Object.entries(fields).map(([name, value]) => `${name}: ${value}`).join("\n");

/** The fields of such lines. A line without a colon is a name without a value, which the API refuses by its name. */
export function fieldsOf(text: string): Record<string, string> {
  const found = linesOf(text).map((line) => {
    const [name = "", ...rest] = line.split(":");
    return [name.trim(), rest.join(":").trim()] as const;
  });
  return Object.fromEntries(found);
}
