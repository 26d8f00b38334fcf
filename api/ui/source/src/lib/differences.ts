/**
 * The differences of two JSON values, by the path of each field. Entries of lists are compared with the entry of the same
 * identity, and one that was moved has its `place` before and after; lists of texts are compared whole.
 */
export interface Difference {
  path: string;
  /** undefined: it was not there, or is not there any more. */
  before: unknown;
  after: unknown;
}

export function differences(before: unknown, after: unknown, path = ""): Difference[] {
  if (same(before, after)) return [];
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => differences(before[name], after[name], path ? `${path}.${name}` : name));
  }
  if (isList(before) && isList(after)) {
    return ofLists(before, after, path);
  }
  return [{ path: path || ".", before, after }];
}

/** By what an entry of a list is known, wherever it stands: `key` is of a form alone. */
const IDENTITIES = ["key", "name", "username"];

function ofLists(before: unknown[], after: unknown[], path: string): Difference[] {
  const [old, now] = [places(before), places(after)];
  const kept = [...now.keys()].filter((identity) => old.has(identity));
  const still = new Set(longestRise(kept.map((identity) => old.get(identity)!)));
  const found = kept.flatMap((identity) => {
    const [from, to] = [old.get(identity)!, now.get(identity)!];
    const move = still.has(from) ? [] : [{ path: `${path}[${identity}].place`, before: from + 1, after: to + 1 }];
    return [...move, ...differences(before[from], after[to], `${path}[${identity}]`)];
  });
  const known = (list: Map<string, number>) => new Set(kept.map((identity) => list.get(identity)!));
  const [knownBefore, knownAfter] = [known(old), known(now)];
  const length = Math.max(before.length, after.length);
  const others = Array.from({ length }, (_, index) => {
    const [was, is] = [knownBefore.has(index) ? undefined : before[index], knownAfter.has(index) ? undefined : after[index]];
    return differences(was, is, `${path}[${nameOf(is ?? was, index)}]`);
  });
  return [...found, ...others.flat()];
}

/** The places of entries by their identities, where each has one of its own. */
function places(list: unknown[]): Map<string, number> {
  const found = new Map(list.map((entry, index) => [identityOf(entry), index]));
  return found.has("") || found.size < list.length ? new Map() : found;
}

function identityOf(entry: unknown): string {
  const name = isObject(entry) ? IDENTITIES.find((each) => typeof entry[each] === "string") : undefined;
  return name ? ((entry as Record<string, unknown>)[name] as string) : "";
}

const nameOf = (entry: unknown, index: number): string => identityOf(entry) || String(index);

/** The longest part of different numbers that rises: entries at these places have kept their order. */
function longestRise(numbers: number[]): number[] {
  /** Of each length of a rise the place of its lowest end; and of each place the one before it in its rise. */
  const ends: number[] = [];
  const before: number[] = [];
  numbers.forEach((number, place) => {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[ends[middle]!]! < number) low = middle + 1;
      else high = middle;
    }
    before[place] = low > 0 ? ends[low - 1]! : -1;
    ends[low] = place;
  });
  const rise: number[] = [];
  for (let place = ends[ends.length - 1] ?? -1; place >= 0; place = before[place]!) rise.push(numbers[place]!);
  return rise;
}

/** A value as it is shown in a difference: texts as they are, else JSON. */
export function shownValue(value: unknown): string {
  return typeof value === "string" ? value || '""' : JSON.stringify(value, null, 1);
}

/** The fields of `after` that differ from `before`, as a body of PATCH: objects are merged, lists replaced. */
export function changes<T extends object>(before: T, after: T): Partial<T> {
  const found: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(after)) {
    const old = (before as Record<string, unknown>)[name];
    if (same(old, value)) continue;
    found[name] = isObject(old) && isObject(value) ? changes(old, value) : value;
  }
  return found as Partial<T>;
}

/** What was changed from `before` to `mine`, done to `theirs` instead: objects are merged, lists and all else replaced. */
export function merged<T>(before: T, mine: T, theirs: T): T {
  if (same(before, mine)) return theirs;
  if (!isObject(before) || !isObject(mine) || !isObject(theirs)) return mine;
  const names = [...new Set([...Object.keys(theirs), ...Object.keys(mine)])];
  return Object.fromEntries(names.map((name) => [name, merged(before[name], mine[name], theirs[name])])) as T;
}

function same(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A list of objects; those of texts are one value. */
function isList(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.some(isObject);
}
