/** Which language is shown: the browser's, if there are texts in it, else English. Others are loaded when needed. */
import { texts as english } from "./en";

export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

class Catalogue {
  language = $state<Language>("en");
  /** By key. */
  texts = $state.raw(english);

  /** The browser's form of the language. */
  get locale(): string {
    const own = typeof navigator === "undefined" ? [] : (navigator.languages ?? []);
    return own.find((each) => each.slice(0, 2).toLowerCase() === this.language) ?? this.language;
  }

  /** Load the language of the browser; before the page is shown. */
  async start(): Promise<void> {
    await this.choose(this.#preferred());
  }

  async choose(language: Language): Promise<void> {
    this.texts = language === "de" ? (await import("./de")).texts : english;
    this.language = language;
  }

  /** The first of the browser's languages that is here. */
  #preferred(): Language {
    const short = navigator.languages.map((each) => each.slice(0, 2).toLowerCase());
    return short.find((each): each is Language => each in LANGUAGES) ?? "en";
  }
}

export const catalogue = new Catalogue();
