/** Words of commands that people copy into a shell. */

const PLAIN = /^[A-Za-z0-9_@%+=:,./-]+$/;

/** A name in a command line: never read as an option. */
export const argument = (name: string): string => (name.startsWith("-") ? `-- ${quoted(name)}` : quoted(name));

/** `word` as a shell reads it as one word and expands nothing of it, whatever it has. */
export const quoted = (word: string): string => (PLAIN.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
