/** The time of now, every ten seconds, while the tab is visible: one timer for all relative times. */
class Ticker {
  now = $state(Date.now());

  start(): void {
    setInterval(() => document.hidden || (this.now = Date.now()), 10_000);
  }
}

export const ticker = new Ticker();
