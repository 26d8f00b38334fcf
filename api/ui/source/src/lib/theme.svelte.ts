/** Light, dark, high contrast (light or dark as the system has it) or all as the system has it: the one thing that is kept in the browser. */
export const THEMES = ["system", "light", "dark", "contrast"] as const;
export type Theme = (typeof THEMES)[number];
const KEY = "proxyfleet.theme";

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
    this.#show(THEMES.find((each) => each === stored()) ?? "system");
  }

  choose(theme: Theme): void {
    this.#show(theme);
    try {
      if (theme === "system") localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, theme);
    } catch {
      return; // storage may be switched off; the choice then lasts until the page is closed
    }
  }

  #show(theme: Theme): void {
    this.chosen = theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }
}

export const themes = new Themes();

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
