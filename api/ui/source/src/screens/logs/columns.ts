/** The columns of records: which there are, and which are shown. The reason stands under the status, the method before the target. */
export const COLUMNS = ["time", "status", "target", "tls_name", "alpn", "tls_version", "client", "user", "proxy", "duration", "in", "out", "upstream"] as const;
export type ColumnKey = (typeof COLUMNS)[number];

/** Hidden unless the reader chose otherwise. */
const HIDDEN: readonly ColumnKey[] = ["in", "upstream", "tls_name", "alpn", "tls_version"];

/** Those that are shown; `hidden` is the word of the address: empty for the default, else keys separated by commas. */
export function shownColumns(hidden: string): ColumnKey[] {
  const without: readonly string[] = hidden ? hidden.split(",") : HIDDEN;
  return COLUMNS.filter((key) => !without.includes(key));
}
