/** CSV as RFC 4180 has it, with line ends of all systems. */

export type CsvRecord = { number: number; cells: string[] } | { number: number };

/** The records of a file with the numbers of their first lines; what is no CSV is the last one. */
export function* records(text: string): Generator<CsvRecord> {
  let at = 0;
  let line = 1;
  while (at < text.length) {
    const number = line;
    const cells: string[] = [];
    for (;;) {
      let cell: string;
      if (text[at] === '"') {
        const quoted = closed(text, at);
        if (quoted === null) return yield { number };
        cell = text.slice(at + 1, quoted).replaceAll('""', '"');
        line += cell.match(/\r\n|\r|\n/g)?.length ?? 0;
        at = quoted + 1;
      } else {
        const end = next(text, at);
        cell = text.slice(at, end);
        at = end;
      }
      cells.push(cell);
      if (text[at] !== ",") break;
      at += 1;
    }
    at += text.startsWith("\r\n", at) ? 2 : 1;
    line += 1;
    yield { number, cells };
  }
}

/** Where an unquoted cell ends. */
function next(text: string, from: number): number {
  let at = from;
  while (at < text.length && text[at] !== "," && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return at;
}

/** Where the quote that ends a cell is; null: nowhere, or something else than a comma or a line's end follows. */
function closed(text: string, from: number): number | null {
  for (let at = text.indexOf('"', from + 1); at !== -1; at = text.indexOf('"', at + 2)) {
    if (text[at + 1] === '"') continue;
    return at + 1 >= text.length || ",\r\n".includes(text[at + 1]!) ? at : null;
  }
  return null;
}
