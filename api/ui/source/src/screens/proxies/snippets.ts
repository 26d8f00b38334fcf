/** The kinds of lines to copy, in the order in which they are offered. */
import type { Schemas } from "../../api/client";

type Texts = Schemas["SnippetTexts"];
export const KINDS = ["curl", "socks", "environment", "python", "git", "pip", "apt", "docker", "chromium", "firefox", "url"] as const satisfies (keyof Texts)[];
export type Kind = (typeof KINDS)[number];

/** With the password, or the secret of a credential, where the placeholder is. */
export const withSecret = (text: string, secret: string): string => text.replaceAll(":PASSWORD@", `:${encodeURIComponent(secret)}@`).replaceAll("//CREDENTIAL:@", `//${encodeURIComponent(secret)}:@`);

/** Whether lines have a place for a secret: those of a proxy that asks for no credentials have none. */
export const asksForSecret = ({ url }: Pick<Texts, "url">): boolean => withSecret(url, "") !== url;

/** The host of this page, for lines that name a proxy which listens at all addresses. */
export const ownHost = (): string => location.hostname.replace(/^\[|\]$/g, "");

/** Those that there are: not every client speaks every protocol. */
export const kindsOf = (found: Texts): Kind[] => KINDS.filter((kind) => found[kind] !== null);
