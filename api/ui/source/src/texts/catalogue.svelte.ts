/** Which language is shown: the one that was chosen, or the browser's, if there are texts in it, else English. Others are loaded when needed. */
import { kept } from "../lib/kept";
import { texts as english } from "./en";

export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;
const KEY = "language";

class Catalogue {
  language = $state<Language>("en");
  /** By key. */
  texts = $state.raw(english);

  /** The browser's form of the language. */
  get locale(): string {
    const own = typeof navigator === "undefined" ? [] : (navigator.languages ?? []);
    return own.find((each) => each.slice(0, 2).toLowerCase() === this.language) ?? this.language;
  }

  /** Load the language; before the page is shown. */
  async start(): Promise<void> {
    await this.#show(this.#preferred());
  }

  async choose(language: Language): Promise<void> {
    kept.set(KEY, language);
    await this.#show(language);
  }

  async #show(language: Language): Promise<void> {
    this.texts = language === "de" ? (await import("./de")).texts : english;
    this.language = language;
  }

  /** The one that was chosen, or the first of the browser's languages that is here. */
  #preferred(): Language {
    const short = [kept.get(KEY) ?? "", ...navigator.languages].map((each) => each.slice(0, 2).toLowerCase());
    return short.find((each): each is Language => each in LANGUAGES) ?? "en";
  }
}

export const catalogue = new Catalogue();
