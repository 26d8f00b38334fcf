/**
 * Accounts as lines of a CSV file, as the command line reads them: a column for each field of the API, nested ones with
 * dots. An empty cell says nothing, `null` is null, and entries of lists are separated by semicolons or a JSON array.
 */
import { t } from "../../../texts";
import { records } from "./csv";

type Reader = (cell: string) => unknown;
export interface Line {
  /** That of its first line in the file, from 1. */
  number: number;
  body: Record<string, unknown>;
}
export interface Wrong {
  number: number | null;
  field: string;
  error: string;
}

const plain: Reader = (cell) => cell;
const nullable: Reader = (cell) => (cell === "null" ? null : cell);
const amount: Reader = (cell) => {
  if (cell === "null") return null;
  if (!/^[0-9]+$/.test(cell)) throw new Error(t("accountimport.wrong.number"));
  return Number(cell);
};
const flag: Reader = (cell) => {
  const word = cell.toLowerCase();
  if (!["true", "yes", "1", "false", "no", "0"].includes(word)) throw new Error(t("accountimport.wrong.flag"));
  return ["true", "yes", "1"].includes(word);
};
const json: Reader = (cell) => {
  try {
    return JSON.parse(cell) as unknown;
  } catch {
    throw new Error(t("accountimport.wrong.json"));
  }
};
const list: Reader = (cell) => {
  if (cell === "null") return null;
  return cell.startsWith("[") ? json(cell) : cell.split(";").map((each) => each.trim()).filter(Boolean);
};

const FIELDS: Record<string, Reader> = {
  "id": plain, "username": plain, "password": plain, "password_hash": plain, "enabled": flag, "plan": nullable, "expires_at": nullable,
  "proxies.all": flag, "proxies.ids": list, "proxies.tags": list,
  "limits.bandwidth_in": amount, "limits.bandwidth_out": amount, "limits.connections": amount, "limits.requests_per_minute": amount,
  "limits.clients": amount, "limits.clients_window": amount,
  "quota.bytes": amount, "quota.period": plain, "allow_clients": list, "allow_destinations": list, "deny_destinations": list,
  "schedule.timezone": plain, "schedule.windows": json, "certificates": list, "socks4_by_name": flag, "tags": list,
};
const METADATA = "metadata.";
/** A cell that a spreadsheet would take for a formula has an apostrophe before it. */
const ESCAPED = /^'(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20'])/;

/** The accounts of a file, and all that is wrong in it. */
export function accountsOf(text: string): { lines: Line[]; wrong: Wrong[] } {
  const lines: Line[] = [];
  const wrong: Wrong[] = [];
  let columns: string[] | null = null;
  for (const record of records(text.replace(/^\ufeff/, ""))) {
    if (!("cells" in record)) wrong.push({ number: record.number, field: "", error: t("accountimport.wrong.csv") });
    else if (columns === null) {
      columns = record.cells;
      wrong.push(...columns.flatMap((name, index) => wrongColumn(name, index, record.cells)));
      if (wrong.length) break;
    } else if (record.cells.some(Boolean)) {
      const read = lineOf(record.number, columns, record.cells);
      if ("body" in read) lines.push(read);
      else wrong.push(...read);
    }
  }
  if (columns === null && !wrong.length) wrong.push({ number: 1, field: "", error: t("accountimport.wrong.columns") });
  return { lines, wrong };
}

function wrongColumn(name: string, index: number, all: string[]): Wrong[] {
  const known = Object.hasOwn(FIELDS, name) || (name.startsWith(METADATA) && name !== METADATA);
  if (!known) return [{ number: 1, field: name, error: t(name.includes(";") ? "accountimport.wrong.commas" : "accountimport.wrong.column", { columns: `${Object.keys(FIELDS).join(", ")}, metadata.NAME` }) }];
  return all.indexOf(name) === index ? [] : [{ number: 1, field: name, error: t("accountimport.wrong.twice") }];
}

function lineOf(number: number, columns: string[], cells: string[]): Line | Wrong[] {
  if (cells.length !== columns.length) return [{ number, field: "", error: t("accountimport.wrong.cells", { n: cells.length, columns: columns.length }) }];
  const body: Record<string, unknown> = {};
  const wrong: Wrong[] = [];
  for (const [index, name] of columns.entries()) {
    const cell = cells[index]!.replace(ESCAPED, "");
    if (cells[index] === "") continue;
    try {
      if (name.startsWith(METADATA)) inside(body, "metadata")[name.slice(METADATA.length)] = cell;
      else put(body, name, FIELDS[name]!(cell));
    } catch (error) {
      wrong.push({ number, field: name, error: (error as Error).message });
    }
  }
  if ("password" in body && "password_hash" in body) wrong.push({ number, field: "password_hash", error: t("accountimport.wrong.passwords") });
  return wrong.length ? wrong : { number, body };
}

function put(body: Record<string, unknown>, name: string, value: unknown): void {
  const [first = "", second] = name.split(".");
  if (second === undefined) body[first] = value;
  else inside(body, first)[second] = value;
}

/** Names of metadata are those of others: an object without a prototype takes all of them. */
function inside(body: Record<string, unknown>, name: string): Record<string, unknown> {
  return (body[name] ??= Object.create(null)) as Record<string, unknown>;
}
