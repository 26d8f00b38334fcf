/**
 * All texts of the page: `t("proxies.empty.title")`, with values `t("common.selected", { n: 3 })`. One file per area and
 * language. A text with `|` has two forms: for one and for other numbers `n`.
 */
import { catalogue } from "./catalogue.svelte";
import type { En } from "./en";

export type Key = { [A in keyof En]: `${A}.${keyof En[A] & string}` }[keyof En];
/** What another language has to have: each key of English. */
export type Texts = { [A in keyof En]: Record<keyof En[A], string> };
export type Values = Record<string, string | number>;

/** The text in the language of the page; reactive. */
export function t(key: Key, values: Values = {}): string {
  return filled(form(catalogue.texts[key] ?? key, values), values);
}

/** A text whose key is put together at run time, such as the name of a state; `otherwise` where there is none. */
export const tMaybe = (key: string, otherwise: string, values: Values = {}): string => (key in catalogue.texts ? filled(catalogue.texts[key]!, values) : otherwise);

/** `en` or `de`. */
export const language = (): string => catalogue.language;

/** For numbers and times: the browser's own form of the language, such as `en-GB`. */
export const locale = (): string => catalogue.locale;

function form(text: string, values: Values): string {
  const [one, other] = text.split("|");
  if (other === undefined || typeof values.n !== "number") return text;
  return new Intl.PluralRules(catalogue.language).select(values.n) === "one" ? (one ?? "") : other;
}

function filled(text: string, values: Values): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => (name in values ? shown(values[name]!) : whole));
}

function shown(value: string | number): string {
  return typeof value === "number" ? value.toLocaleString(catalogue.locale) : value;
}
