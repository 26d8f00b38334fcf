/** Light, dark, high contrast (light or dark as the system has it) or all as the system has it. */
import { kept } from "./kept";

export const THEMES = ["system", "light", "dark", "contrast"] as const;
export type Theme = (typeof THEMES)[number];
const KEY = "theme";

class Themes {
  chosen = $state<Theme>("system");
  #system = $state(false);

  /** Whether what is shown is dark; charts draw with the colours of now. */
  get dark(): boolean {
    return this.chosen === "dark" || (this.chosen !== "light" && this.#system);
  }

  start(): void {
    const query = matchMedia("(prefers-color-scheme: dark)");
    this.#system = query.matches;
    query.addEventListener("change", (event) => (this.#system = event.matches));
    this.#show(THEMES.find((each) => each === kept.get(KEY)) ?? "system");
  }

  choose(theme: Theme): void {
    this.#show(theme);
    kept.set(KEY, theme === "system" ? null : theme);
  }

  #show(theme: Theme): void {
    this.chosen = theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }
}

export const themes = new Themes();
