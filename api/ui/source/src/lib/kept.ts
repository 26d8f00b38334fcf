/** What this browser keeps from one visit to the next, such as theme and language: choices of the reader, and nothing of the service. */
const PREFIX = "proxyfleet.";

export const kept = {
  /** null where nothing is kept, or storage is switched off. */
  get(name: string): string | null {
    try {
      return localStorage.getItem(PREFIX + name);
    } catch {
      return null;
    }
  },
  /** null forgets it. Where storage is switched off it lasts until the page is closed, at most. */
  set(name: string, value: string | null): void {
    try {
      if (value === null) localStorage.removeItem(PREFIX + name);
      else localStorage.setItem(PREFIX + name, value);
    } catch {
      return;
    }
  },
};
