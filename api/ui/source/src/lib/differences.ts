/** The differences of two JSON values, by the path of each field. Lists of texts are compared whole. */
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
    const length = Math.max(before.length, after.length);
    return Array.from({ length }, (_, index) => differences(before[index], after[index], `${path}[${index}]`)).flat();
  }
  return [{ path: path || ".", before, after }];
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A list of objects; those of texts are one value. */
function isList(value: unknown): value is unknown[] {
  return Array.isArray(value) && value.some(isObject);
}
