/** Texts of all areas by key, such as `common.close`. The build has a form of its own, without most keys (`texts-by-number.ts`). */
export const flat = (areas: Record<string, Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(areas).flatMap(([area, texts]) => Object.entries(texts).map(([key, text]) => [`${area}.${key}`, text])));
