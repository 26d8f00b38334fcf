/** The kinds of lines to copy, in the order in which they are offered. */
import { api, data, type Schemas } from "../../api/client";

type Texts = Schemas["SnippetTexts"];
export const KINDS = ["curl", "socks", "environment", "python", "git", "pip", "apt", "docker", "chromium", "firefox", "url"] as const satisfies (keyof Texts)[];
export type Kind = (typeof KINDS)[number];

/** With the password, or the secret of a credential, where the placeholder is. */
export const withSecret = (text: string, secret: string): string => text.replaceAll(":PASSWORD@", `:${encodeURIComponent(secret)}@`).replaceAll("//CREDENTIAL:@", `//${encodeURIComponent(secret)}:@`);

/** Whether lines have a place for a secret: those of a proxy that asks for no credentials have none. */
export const asksForSecret = ({ url }: Pick<Texts, "url">): boolean => withSecret(url, "") !== url;

/** What clients connect to, without the credentials before it: `proxy.example:3128`. */
export const addressIn = ({ url }: Pick<Texts, "url">): string => /^\w+:\/\/(?:[^@]*@)?(.+)$/.exec(url)?.[1] ?? "";

/** Lines for clients of a proxy, as the service makes them. */
export const linesFor = async (proxy_id: string, signal: AbortSignal, username = ""): Promise<Texts> =>
  (await data(api.GET("/api/v1/proxies/{proxy_id}/snippets", { params: { path: { proxy_id }, query: username ? { username } : {} }, signal }))).snippets;

/** Those that there are: not every client speaks every protocol. */
export const kindsOf = (found: Texts): Kind[] => KINDS.filter((kind) => found[kind] !== null);
