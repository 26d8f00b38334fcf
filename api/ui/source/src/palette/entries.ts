/**
 * What the palette offers for what was typed: results of the search, screens, and actions that words name, such as
 * "restart office". All of it is data, so that it is tested without a page.
 */
import type { Schemas } from "../api/client";
import { PLACES, type Area } from "../areas";
import type { IconName } from "../components/icons";
import { t, tMaybe, type Key } from "../texts";

export type Result = Schemas["SearchResult"];
export type Kind = Result["kind"];

/** What is done when an entry is chosen: a screen, other words in the field, or a change of a proxy. */
export type Deed = { go: string } | { type: string } | { act: "restart" | "stop" | "start"; id: string; name: string };

export interface Entry {
  key: string;
  icon: IconName;
  title: string;
  detail: string;
  /** Words that it is found by, too. */
  also?: string;
  does: Deed;
}
export interface Section {
  key: string;
  title: string;
  entries: Entry[];
}

interface Verb {
  icon: IconName;
  /** What it is done to. */
  kinds: readonly Kind[];
  permission: string;
  does: (result: Pick<Result, "kind" | "id" | "name">) => Deed;
}

const act = (action: "restart" | "stop" | "start", icon: IconName): Verb => ({ icon, kinds: ["proxy"], permission: "proxy.write", does: ({ id, name }) => ({ act: action, id, name }) });
/** Their words are in `palette.NAME.words`, with commas between them. */
export const VERBS = {
  restart: act("restart", "restart"),
  stop: act("stop", "stop"),
  start: act("start", "play"),
  block: { icon: "policies", kinds: ["host"], permission: "proxy.write", does: ({ name }) => ({ go: address("/policies", { block: name }) }) },
  why: { icon: "logs", kinds: ["account", "proxy"], permission: "metrics.read", does: ({ kind, id, name }) => ({ go: address("/logs", kind === "proxy" ? { proxy: id, outcome: "refused" } : { user: name, outcome: "refused" }) }) },
  credential: { icon: "keys", kinds: ["account"], permission: "proxy.write", does: ({ id }) => ({ go: address(`${below("/accounts", id)}/credentials`, { mint: "1" }) }) },
} satisfies Record<string, Verb>;
export type VerbName = keyof typeof VERBS;
const NAMES = Object.keys(VERBS) as VerbName[];

/** What needs no name: making something, and taking back the last change. The words are `palette.new.NAME`. */
const MADE = {
  proxy: ["proxy.write", "/proxies/new"],
  account: ["proxy.write", "/accounts/new"],
  pool: ["proxy.write", "/pools/new"],
  policy: ["proxy.write", "/policies/new"],
  list: ["proxy.write", "/lists/new"],
  plan: ["proxy.write", "/plans/new"],
  user: ["users.write", "/users/new"],
  webhook: ["settings.write", "/webhooks/new"],
  undo: ["admin", "/changes?undo=1"],
} as const;

/** Each kind: the title of its section, its icon, and the screen of one. */
const KINDS: Record<Kind, { title: Key; icon: IconName; path: (id: string) => string }> = {
  proxy: { title: "shell.area.proxies", icon: "proxies", path: (id) => below("/proxies", id) },
  account: { title: "shell.area.accounts", icon: "accounts", path: (id) => below("/accounts", id) },
  user: { title: "shell.area.users", icon: "users", path: (id) => below("/users", id) },
  pool: { title: "shell.area.pools", icon: "pools", path: (id) => below("/pools", id) },
  policy: { title: "shell.area.policies", icon: "policies", path: (id) => below("/policies", id) },
  list: { title: "shell.area.lists", icon: "lists", path: (id) => below("/lists", id) },
  plan: { title: "shell.area.plans", icon: "plans", path: (id) => below("/plans", id) },
  webhook: { title: "shell.area.webhooks", icon: "webhooks", path: (id) => below("/webhooks", id) },
  node: { title: "shell.area.nodes", icon: "nodes", path: () => "/nodes" },
  host: { title: "palette.hosts", icon: "resolver", path: (id) => address("/logs", { target: id }) },
  setting: { title: "shell.area.settings", icon: "settings", path: (id) => address("/settings/keys", { q: id }) },
};
/** Lines that are a number of something, in words of the page. */
const NUMBERED: Partial<Record<Kind, Key>> = { host: "palette.requests", pool: "palette.upstreams", policy: "palette.rules" };

const below = (path: string, id: string): string => `${path}/${encodeURIComponent(id)}`;
const address = (path: string, query: Record<string, string>): string => `${path}?${new URLSearchParams(query)}`;

/** Letters without accents and in lower case, so that "uber" finds "Übersicht". */
const folded = (text: string): string => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

/** How a text has what was typed: 0 it is all of it, 1 its beginning, 2 that of a word, 3 a part; null: it has not. */
export function rankOf(text: string, typed: string): number | null {
  const [within, wanted] = [folded(text), folded(typed)];
  let at = within.indexOf(wanted);
  if (at === 0) return within.length > wanted.length ? 1 : 0;
  while (at > 0 && /[\p{L}\p{N}]/u.test(within[at - 1]!)) at = within.indexOf(wanted, at + 1);
  return at > 0 ? 2 : within.includes(wanted) ? 3 : null;
}

const wordsOf = (verb: VerbName): string[] => t(`palette.${verb}.words`).split(",");

export interface Command {
  verb: VerbName;
  /** What it is done to. */
  rest: string;
}

/** The verb that what was typed begins with, and the rest; null without one that the visitor may use. */
export function commandOf(typed: string, may: (permission: string) => boolean): Command | null {
  const wanted = folded(typed).trimStart();
  const found = NAMES.filter((verb) => may(VERBS[verb].permission))
    .flatMap((verb) => wordsOf(verb).map((word) => ({ verb, word: folded(word) })))
    .filter(({ word }) => wanted === word || wanted.startsWith(`${word} `))
    .sort((a, b) => b.word.length - a.word.length)[0];
  if (!found) return null;
  return { verb: found.verb, rest: typed.trim().split(/\s+/).slice(found.word.split(" ").length).join(" ") };
}

/** What the service is asked for: the text, and of which kinds (none: all). Null: nothing. */
export function question(typed: string, may: (permission: string) => boolean): { q: string; kinds: readonly Kind[] } | null {
  const command = commandOf(typed, may);
  const q = (command ? command.rest : typed).trim().slice(0, 100);
  return q ? { q, kinds: command ? VERBS[command.verb].kinds : [] } : null;
}

/** What the palette shows. `results` are those of the `question`; `recent` what was chosen before. */
export function sectionsOf(typed: string, results: readonly Result[], areas: readonly Area[], may: (permission: string) => boolean, recent: readonly Entry[]): Section[] {
  const command = commandOf(typed, may);
  if (command?.rest) return section("actions", t("common.actions"), actionsOf(command, results));
  const text = typed.trim();
  if (!text) return [...section("recent", t("palette.recent"), [...recent]), ...section("actions", t("common.actions"), offers(may)), ...section("screens", t("palette.screens"), areas.map(screen))];
  const local = [
    ...ranked("screens", t("palette.screens"), areas.map(screen), text),
    ...ranked("actions", t("common.actions"), [...offers(may), ...made(may)], text),
  ];
  const groups = [...local, ...found(results, text), ...section("with", t("palette.with"), withBest(results, may)).map((each) => ({ ...each, rank: 2 }))];
  return groups.sort((a, b) => a.rank - b.rank).map(({ key, title, entries }) => ({ key, title, entries }));
}

const section = (key: string, title: string, entries: Entry[]): Section[] => (entries.length ? [{ key, title, entries }] : []);

/** The entries that match, the best ones first, and how the best of them does. */
function ranked(key: string, title: string, entries: Entry[], text: string): (Section & { rank: number })[] {
  const matching = entries.map((entry) => ({ entry, rank: rankOf(entry.title, text) ?? (rankOf(entry.also ?? "", text) === null ? null : 2) })).filter((each): each is { entry: Entry; rank: number } => each.rank !== null);
  matching.sort((a, b) => a.rank - b.rank);
  return section(key, title, matching.map(({ entry }) => entry)).map((each) => ({ ...each, rank: matching[0]!.rank }));
}

/** The results by their kind, in the order of the service. */
function found(results: readonly Result[], text: string): (Section & { rank: number })[] {
  const kinds = [...new Set(results.map(({ kind }) => kind))];
  return kinds.map((kind) => {
    const those = results.filter((each) => each.kind === kind);
    return { key: kind, title: t(KINDS[kind].title), entries: those.map(entryOf), rank: rankOf(those[0]!.name, text) ?? 3 };
  });
}

function entryOf(result: Result): Entry {
  const { icon, path } = KINDS[result.kind];
  return { key: `${result.kind} ${result.id}`, icon, title: result.name, detail: lineOf(result), does: { go: path(result.id) } };
}

/** The line of the service; states and numbers in the words of the page. */
function lineOf({ kind, detail }: Result): string {
  const numbered = NUMBERED[kind];
  if (numbered) return t(numbered, { n: Number.parseInt(detail, 10) });
  if (kind === "setting") return detail;
  return detail.split(", ").map((part) => tMaybe(`common.state.${part}`, part)).join(", ");
}

/** A verb with what it can be done to. A host need not be known. */
function actionsOf({ verb, rest }: Command, results: readonly Result[]): Entry[] {
  const typed = { kind: "host", id: rest, name: rest, detail: "" } as Result;
  const known = results.filter(({ kind }) => (VERBS[verb].kinds as readonly Kind[]).includes(kind));
  const isNew = verb === "block" && /^[^\s/:]+\.[^\s/:]+$/.test(rest) && !known.some(({ name }) => name === rest.toLowerCase());
  return [...(isNew ? [typed] : []), ...known].map((result) => actionOn(verb, result));
}

function actionOn(verb: VerbName, result: Result): Entry {
  const title = verb === "why" && result.kind === "proxy" ? "palette.why.proxy" : (`palette.${verb}` as const);
  return { key: `${verb} ${result.kind} ${result.id}`, icon: VERBS[verb].icon, title: t(title, { name: result.name }), detail: result.detail && lineOf(result), does: VERBS[verb].does(result) };
}

/** What can be done with the best result, if its name begins with the text. */
function withBest(results: readonly Result[], may: (permission: string) => boolean): Entry[] {
  const best = results[0];
  if (!best || best.field !== "name" || (best.match !== "exact" && best.match !== "prefix")) return [];
  const stopped = best.detail.endsWith(", stopped");
  const verbs = NAMES.filter((verb) => may(VERBS[verb].permission) && (VERBS[verb].kinds as readonly Kind[]).includes(best.kind));
  return verbs.filter((verb) => (verb === "start" ? stopped : verb === "stop" ? !stopped : true)).map((verb) => ({ ...actionOn(verb, best), detail: "" }));
}

/** The verbs, to be completed by a name. */
const offers = (may: (permission: string) => boolean): Entry[] =>
  NAMES.filter((verb) => may(VERBS[verb].permission)).map((verb) => ({ key: verb, icon: VERBS[verb].icon, title: t(`palette.${verb}`, { name: "…" }), detail: "", does: { type: `${wordsOf(verb)[0]} ` } }));

const made = (may: (permission: string) => boolean): Entry[] =>
  (Object.keys(MADE) as (keyof typeof MADE)[]).filter((kind) => may(MADE[kind][0])).map((kind) => ({ key: `new ${kind}`, icon: kind === "undo" ? "restart" : "plus", title: t(`palette.new.${kind}`), detail: "", does: { go: MADE[kind][1] } }));

/** A screen is found by the name of its place, too. */
const screen = ({ key, icon, title, place, path, shortcut }: Area): Entry => ({ key: `screen ${key}`, icon, title: t(title), detail: shortcut ? `g ${shortcut}` : "", also: place ? t(PLACES[place].title) : "", does: { go: path } });

/** What was chosen last, first, in this tab by this user alone. */
const MOST = 6;
const chosen: { by: string; entries: Entry[] } = { by: "", entries: [] };

export const recentOf = (user: string): readonly Entry[] => (chosen.by === user ? chosen.entries : []);

export function remember(user: string, entry: Entry): void {
  if ("type" in entry.does) return;
  const before = recentOf(user).filter(({ key }) => key !== entry.key);
  chosen.by = user;
  chosen.entries = [entry, ...before].slice(0, MOST);
}
