/** What the API says stands in the way of an undo. */

/** A field without the collection and the id of its object, whom the error names. */
export function fieldWords(field: string): string {
  return field.replace(/^[a-z_]+\.[a-z]+_[0-9a-f]+\.?/, "").replace(/^settings\./, "");
}

/** The revisions that an error names: `by revision 9 (greta)`, `by the revisions 12 (paul), 9 (greta)`. */
export function laterRevisions(error: string): number[] {
  const named = /by (?:the )?revisions? (.*?);/.exec(error)?.[1] ?? "";
  return [...named.matchAll(/(?:^|, )([1-9]\d{0,14}) \(/g)].map((each) => Number(each[1]));
}
