/** Where the list of credentials comes from: the operations on an account, or those of its holder. */
import { api, data, type Schemas } from "../../api/client";
import { linesFor } from "../proxies/snippets";

/** When an account was last seen, and from where. */
export interface Seen {
  at: string | null;
  from: string | null;
}

export interface Calls {
  list: (cursor: string | undefined, signal: AbortSignal) => Promise<Schemas["Credentials"]>;
  mint: (body: never) => Promise<Schemas["NewCredential"]>;
  revoke: (id: string) => Promise<unknown>;
  /** The running proxies that the account may use, as `lines` takes them, with their names. */
  proxies: (signal: AbortSignal) => Promise<{ value: string; title: string }[]>;
  seen: (signal: AbortSignal) => Promise<Seen>;
  /** Lines to copy for one of them. */
  lines: (proxy: string, signal: AbortSignal) => Promise<Schemas["SnippetTexts"] | null>;
}

/** Proxies that are offered. */
const PROXIES = 100;

/** Those that ask for credentials come first: lines of the others have no secret. */
export const askingFirst = <P extends { auth_enabled: boolean }>(proxies: readonly P[]): P[] => [...proxies.filter((each) => each.auth_enabled), ...proxies.filter((each) => !each.auth_enabled)];

/** The operations on the account with this id and user name. */
export function credentialsOf(account_id: string, username: string): Calls {
  const path = { account_id };
  return {
    list: (cursor, signal) => data(api.GET("/api/v1/accounts/{account_id}/credentials", { params: { path, query: { limit: 100, cursor } }, signal })),
    mint: (body) => data(api.POST("/api/v1/accounts/{account_id}/credentials", { params: { path }, body })),
    revoke: (credential_id) => data(api.DELETE("/api/v1/accounts/{account_id}/credentials/{credential_id}", { params: { path: { ...path, credential_id } } })),
    proxies: async (signal) => {
      const query = { account: account_id, status: "active" as const, sort: "name" as const, per_page: PROXIES };
      const { proxies } = await data(api.GET("/api/v1/proxies", { params: { query }, signal }));
      return askingFirst(proxies).map(({ id, name }) => ({ value: id, title: name }));
    },
    seen: async (signal) => {
      const { account } = await data(api.GET("/api/v1/accounts/{account_id}", { params: { path }, signal }));
      return { at: account.last_seen_at, from: account.last_client_ip };
    },
    lines: (proxy_id, signal) => linesFor(proxy_id, signal, username),
  };
}
