/** The time of now, every ten seconds while the tab is visible, and with each response, which may name times since then. */
class Ticker {
  now = $state(Date.now());

  start(): void {
    setInterval(() => document.hidden || this.tick(), 10_000);
  }

  tick(): void {
    this.now = Date.now();
  }
}

export const ticker = new Ticker();
