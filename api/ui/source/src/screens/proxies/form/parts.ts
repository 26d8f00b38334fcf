/** The parts of the configuration of a proxy in the order of its form, and what they are called in the document. */
import { differences } from "../../../lib/differences";
import type { Draft } from "../../../lib/draft.svelte";
import { speaksTls, type ProxyValue } from "./value";

/** With the fields that they have; the last one has all others. */
const FIELDS = {
  general: ["name", "description", "protocol", "host", "port", "tags", "nodes"],
  auth: ["auth", "username_params"],
  tls: ["tls"],
  access: ["access", "policy", "tls_name", "tls_ports"],
  upstreams: ["pool", "upstreams", "upstream_policy", "upstream_check"],
  limits: ["limits"],
  more: [],
} as const satisfies Record<string, readonly (keyof ProxyValue)[]>;
type Part = keyof typeof FIELDS;
const KEYS = Object.keys(FIELDS) as Part[];

export const PARTS = Object.fromEntries(KEYS.map((key) => [key, `part-${key}`])) as Record<Part, string>;

/** Those that there are, with how many of their fields are changed, and wrong. */
export function partsOf({ original, value, errors }: Pick<Draft<ProxyValue>, "original" | "value" | "errors">): { key: Part; changed: number; wrong: number }[] {
  const changed = countsOf(differences(original, value).map(({ path }) => path));
  const wrong = countsOf(Object.keys(errors));
  return KEYS.filter((key) => key !== "tls" || speaksTls(value)).map((key) => ({ key, changed: changed.get(key) ?? 0, wrong: wrong.get(key) ?? 0 }));
}

function countsOf(paths: readonly string[]): Map<Part, number> {
  const found = new Map<Part, number>();
  for (const path of paths) {
    const field = /^\w+/.exec(path)?.[0] ?? "";
    const part = KEYS.find((key) => (FIELDS[key] as readonly string[]).includes(field)) ?? "more";
    found.set(part, (found.get(part) ?? 0) + 1);
  }
  return found;
}
