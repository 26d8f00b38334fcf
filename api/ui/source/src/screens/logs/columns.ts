import type { Values } from "./query";

/** The columns of records: which there are, and which are shown. The reason stands under the status, the method before the target. */
export const COLUMNS = ["time", "status", "target", "tls_name", "alpn", "tls_version", "client", "user", "proxy", "node", "duration", "in", "out", "upstream"] as const;
export type ColumnKey = (typeof COLUMNS)[number];

/** Hidden unless the reader chose otherwise; one that is chosen is on cards of a phone, too. */
const HIDDEN: readonly ColumnKey[] = ["in", "upstream", "tls_name", "alpn", "tls_version"];

/** Those that are shown; `hidden` is the word of the address: empty for the default, else keys separated by commas. Where records are looked for by the name in the handshake, it is shown by default. */
export function shownColumns({ hidden, reason, tls_name }: Pick<Values, "hidden" | "reason" | "tls_name">): ColumnKey[] {
  const named = tls_name !== "" || reason.endsWith("tls_name_denied");
  const without: readonly string[] = hidden ? hidden.split(",") : HIDDEN.filter((key) => !(named && key === "tls_name"));
  return COLUMNS.filter((key) => !without.includes(key));
}
