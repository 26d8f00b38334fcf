/**
 * Texts as the build has them: without their keys, in one order for all languages. The program has a number in place of a
 * key: `t("common.close")` is `catalogue.texts[12]`. Keys that are put together at run time come first in the order, and have
 * names as well: what stands in `t(`common.state.${state}`)` for the state has no dot, and anything may be in `tMaybe(…)`.
 */
const CALL = /(?<![\w.$])t\(([^"`;{}]*\? )?"([\w.]+)"(?: : "([\w.]+)")?([),])/g;
const WORD = /"(\w+\.[\w.]+)"/g;
const PATTERN = /(tMaybe\()?`([\w.]*)\$\{(?:[^{}`]*\}([\w.]*)`)?/g;

export interface Numbered {
  /** The keys: first those that have names. */
  order: string[];
  names: string[];
  /** A source with the numbers of its texts; `catalogue` is where it finds them. */
  numbered: (source: string, catalogue: string) => string;
}

/** Raises where a text is used by no source, or in a way that is not found here. */
export function byNumber(keys: readonly string[], sources: readonly string[]): Numbered {
  const known = new Set(keys);
  const written = new Set<string>();
  const named = new Set<string>();
  for (const source of sources) {
    const rest = source.replace(CALL, (call, _condition, one, other) => {
      if (![one, other ?? one].every((key) => known.has(key))) return call;
      written.add(one).add(other ?? one);
      return "";
    });
    for (const [, key] of rest.matchAll(WORD)) if (known.has(key!)) named.add(key!);
    for (const [, maybe, head, tail] of rest.matchAll(PATTERN)) {
      if (!`${head}${tail ?? ""}`.includes(".") || (!head && !tail)) continue;
      const pattern = new RegExp(`^${head!.replaceAll(".", "\\.")}${tail === undefined || maybe ? ".+" : "[^.]+"}${(tail ?? "").replaceAll(".", "\\.")}$`);
      for (const key of keys) if (pattern.test(key)) named.add(key);
    }
  }
  const unused = keys.filter((key) => !written.has(key) && !named.has(key));
  if (unused.length) throw new Error(`no source uses these texts: ${unused.join(", ")}`);
  const names = keys.filter((key) => named.has(key));
  const order = [...names, ...keys.filter((key) => !named.has(key))];
  const numbers = new Map(order.map((key, at) => [key, at]));
  const numbered = (source: string, catalogue: string) => {
    let found = false;
    const code = source.replace(CALL, (call, condition = "", one, other, end) => {
      const [first, second] = [numbers.get(one), numbers.get(other ?? one)];
      if (first === undefined || second === undefined) return call;
      const number = other === undefined ? `${first}` : `${condition}${first} : ${second}`;
      if (end === ",") return `t(${number},`;
      found = true;
      return `TEXTS.texts[${number}]`;
    });
    return found ? code.replace(/^( *import )/m, `$1{ catalogue as TEXTS } from "${catalogue}"; $1`) : code;
  };
  return { order, names, numbered };
}

/** Names one after the other, each with a dot in place of each part that the one before has, too: `state.up .down` for `state.up state.down`. */
export const folded = (names: readonly string[]): string =>
  names
    .map((name, at) => {
      const [parts, before] = [name.split("."), (names[at - 1] ?? "").split(".")];
      const other = parts.findIndex((part, place) => part !== before[place] || place === parts.length - 1);
      return ".".repeat(other) + parts.slice(other).join(".");
    })
    .join(" ");

/** The program that gives texts their `folded` names. */
export const unfolding = (names: readonly string[]): string =>
  `(texts) => { let parts = []; "${folded(names)}".split(" ").forEach((each, at) => { const own = each.replace(/^\\.+/, ""); parts = [...parts.slice(0, each.length - own.length), ...own.split(".")]; texts[parts.join(".")] = texts[at]; }); return texts; }`;
