/** The way of a request through a proxy, step by step, and at which of them each reason refuses it. docs/refusals.md has the same table. */
export const STEPS = ["listener", "sign_in", "limits", "policy", "exit", "target"] as const;
export type Step = (typeof STEPS)[number];

export const REASONS: Record<Step, readonly string[]> = {
  listener: [
    "client_denied", "client_not_allowed", "http_request_error", "proxy_protocol_error", "proxy_protocol_timeout", "tls_not_spoken", "tls_certificate_rejected", "tls_handshake_failed",
    "client_certificate_missing", "client_certificate_expired", "client_certificate_revoked", "client_certificate_unknown_ca", "client_certificate_invalid",
  ],
  sign_in: [
    "http_request_denied", "client_certificate_unmatched", "unknown_parameters", "auth_backend_failed", "accounts_unavailable", "account_disabled", "account_expired", "account_network_not_allowed",
    "outside_schedule", "credential_expired", "credential_network_not_allowed",
  ],
  limits: [
    "connection_limit_reached", "client_connection_limit", "client_request_limit", "account_connection_limit", "account_request_limit", "account_client_limit", "account_quota_reached",
    "credential_connection_limit", "credential_quota_reached", "rule_connection_limit", "rule_request_limit",
  ],
  policy: [
    "policy_denied", "destination_denied", "destination_not_allowed", "account_destination_denied", "account_destination_not_allowed", "credential_destination_not_allowed", "destination_ip_prohibited",
    "tls_name_denied",
  ],
  exit: ["no_upstream_matches", "proxy_configuration_error", "no_source_address", "destination_ip_unroutable", "proxy_loop_detected", "proxy_internal_error"],
  target: ["dns_error", "dns_timeout", "connection_refused", "connection_timeout", "destination_unavailable", "connection_terminated", "http_protocol_error", "http_response_timeout"],
};
const STEP_OF = new Map(STEPS.flatMap((step) => REASONS[step].map((reason) => [reason, step] as const)));

export interface Refused {
  reason: string;
  n: number;
}

/** What is refused at each step, most often first. Behind upstreams what can't be reached is one of these. Other words, such as those of report mode, refuse nothing. */
export function refusedAt(counts: Iterable<readonly [string, number]>, direct: boolean): Record<Step, Refused[]> {
  const found = Object.fromEntries(STEPS.map((step) => [step, [] as Refused[]])) as Record<Step, Refused[]>;
  for (const [reason, n] of counts) {
    const step = !direct && reason === "destination_unavailable" ? "exit" : STEP_OF.get(reason);
    if (step && n > 0) found[step].push({ reason, n });
  }
  for (const each of Object.values(found)) each.sort((one, other) => other.n - one.n);
  return found;
}

export const sumOf = (refused: readonly Refused[]): number => refused.reduce((sum, { n }) => sum + n, 0);
