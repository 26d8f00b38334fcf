/** Which language is shown: the browser's, if there are texts in it, else English. Others are loaded when needed. */
import { en, type En } from "./en";
import type { Texts } from "./index";

export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

class Catalogue {
  language = $state<Language>("en");
  texts = $state.raw<Texts>(en satisfies En);

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
    this.texts = language === "de" ? keyed((await import("./de")).de) : en;
    this.language = language;
  }

  /** The first of the browser's languages that is here. */
  #preferred(): Language {
    const short = navigator.languages.map((each) => each.slice(0, 2).toLowerCase());
    return short.find((each): each is Language => each in LANGUAGES) ?? "en";
  }
}

/** With the keys of English, where the build left them out (`vite.config.ts`). */
function keyed(texts: Texts): Texts {
  const areas = Object.entries(texts).map(([area, found]: [string, object]) => {
    const keys = Object.keys(en[area as keyof En]).sort();
    return [area, Array.isArray(found) ? Object.fromEntries(keys.map((key, at) => [key, found[at]])) : found];
  });
  return Object.fromEntries(areas);
}

export const catalogue = new Catalogue();
