/** Where the list of credentials comes from: the operations on an account, or those of its holder. */
import { api, data, type Schemas } from "../../api/client";

export interface Calls {
  list: (cursor: string | undefined, signal: AbortSignal) => Promise<Schemas["Credentials"]>;
  mint: (body: never) => Promise<Schemas["NewCredential"]>;
  revoke: (id: string) => Promise<unknown>;
}

/** The operations on the account with this id. */
export function credentialsOf(account_id: string): Calls {
  const path = { account_id };
  return {
    list: (cursor, signal) => data(api.GET("/api/v1/accounts/{account_id}/credentials", { params: { path, query: { limit: 100, cursor } }, signal })),
    mint: (body) => data(api.POST("/api/v1/accounts/{account_id}/credentials", { params: { path }, body })),
    revoke: (credential_id) => data(api.DELETE("/api/v1/accounts/{account_id}/credentials/{credential_id}", { params: { path: { ...path, credential_id } } })),
  };
}
