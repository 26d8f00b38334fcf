/** The lines of a text that have something, without the blanks around them. */
export const linesOf = (text: string): string[] => text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
