/** An account of one proxy as its form has it, and as the API takes it. */
import type { Schemas } from "../../../api/client";
import { changes } from "../../../lib/differences";
import { CLIENTS_WINDOW, type Limit, type PERIODS } from "../../accounts/rules";

export interface AccountValue {
  username: string;
  password: string;
  enabled: boolean;
  expires_at: string | null;
  limits: Record<Limit, number | null>;
  quota: { bytes: number | null; period: (typeof PERIODS)[number] };
  allow_clients: string[];
}

export const blank = (): AccountValue => ({
  username: "", password: "", enabled: true, expires_at: null,
  limits: { bandwidth_in: 0, bandwidth_out: 0, connections: 0, requests_per_minute: 0, clients: 0, clients_window: CLIENTS_WINDOW }, quota: { bytes: 0, period: "month" }, allow_clients: [],
});

/** A stored account for the form; the password is never in it. */
export function valueOf({ username, enabled, expires_at, limits, quota, allow_clients }: Schemas["UsedAccount"]): AccountValue {
  return structuredClone({ username, password: "", enabled, expires_at, limits, quota, allow_clients });
}

/** The body of a create or a PATCH: what is different. An empty number is no limit; the name of a stored one stays. */
export function bodyOf(before: AccountValue, after: AccountValue): Record<string, unknown> {
  const { username, password, limits, quota, ...found } = changes(before, after) as Partial<AccountValue>;
  const body: Record<string, unknown> = { ...found };
  if (before.username === "") body.username = username;
  if (password) body.password = password;
  if (limits) body.limits = zeros({ ...limits, ...(limits.clients_window === null ? { clients_window: CLIENTS_WINDOW } : {}) });
  if (quota) body.quota = zeros(quota);
  return body;
}

const zeros = (numbers: object): Record<string, unknown> => Object.fromEntries(Object.entries(numbers).map(([name, value]) => [name, value ?? 0]));
