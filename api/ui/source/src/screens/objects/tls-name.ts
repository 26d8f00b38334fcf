/** The name in the TLS handshake of a tunnel: what is done about it, what came out of it, and what helps then. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type Check = Schemas["DetailedProxy"]["tls_name"];
export const CHECKS = ["auto", "off", "record", "match", "allowed"] as const satisfies readonly Check[];

const KINDS = ["match", "mismatch", "not_tls", "no_name", "malformed", "timeout"] as const;
export type Kind = (typeof KINDS)[number];

/** The key of its text; empty is left to the proxy. */
export const wordOf = (check: Check | ""): Check | "inherited" => check || "inherited";

/** `automatic · ports 443, 8443`. */
export function checkText({ tls_name, tls_ports }: Pick<Schemas["DetailedProxy"], "tls_name" | "tls_ports">): string {
  return `${t(`tlsname.${tls_name}`)} · ${tls_ports.length ? t("tlsname.ports.n", { n: tls_ports.length, ports: tls_ports.join(", ") }) : t("tlsname.ports.none")}`;
}

/** What helps after a refusal, also one that was only reported; empty for other reasons. A detail begins with the kind. */
export function fixOf({ reason, detail }: { reason: string; detail: string }): string {
  if (reason.replace(/^reported:/, "") !== "tls_name_denied") return "";
  const kind = KINDS.find((each) => detail.startsWith(`${each}:`));
  return kind ? fixText(kind, detail) : "";
}

/** What Explain is asked about the handshake of a record: its name, or that it had none. */
export const askedOf = ({ tls_name, detail }: { tls_name: string; detail: string }): { tls_name: string; nameless: boolean } => ({ tls_name, nameless: detail.startsWith("no_name:") });

/** What a record says is wrong, without the kind before it. */
export const detailOf = ({ reason, detail }: { reason: string; detail: string }): string => (/^(reported:)?tls_name_denied$/.test(reason) ? detail.replace(/^[a-z_]+: /, "") : detail);

/** What decided; the field alone is a setting of the proxy. */
export const ruleText = (rule: string): string => (rule === "tls_name" ? t("tlsname.setting") : rule);

/** The detail goes on after a semicolon where the name itself was asked about, as `allowed` does: then another check changes nothing. */
export function fixText(kind: Kind, detail: string): string {
  if (kind === "match") return "";
  return t(kind === "mismatch" && detail.includes("; ") ? "tlsname.fix.refused" : `tlsname.fix.${kind}`);
}
