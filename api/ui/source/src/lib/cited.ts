/** What the service says in English, within a text of the page: in another language it is a quotation. */
import { t } from "../texts";

export const cited = (text: string): string => t("errors.cited", { text });
