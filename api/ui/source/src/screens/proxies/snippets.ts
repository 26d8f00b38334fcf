/** The kinds of lines to copy, in the order in which they are offered. */
import type { Schemas } from "../../api/client";

type Texts = Schemas["SnippetTexts"];
export const KINDS = ["curl", "environment", "python", "git", "pip", "apt", "docker", "chromium", "firefox", "url"] as const satisfies (keyof Texts)[];
export type Kind = (typeof KINDS)[number];

/** Those that there are: not every client speaks every protocol. */
export const kindsOf = (found: Texts): Kind[] => KINDS.filter((kind) => found[kind] !== null);
