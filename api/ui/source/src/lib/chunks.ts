/** The parts of the program that are loaded when they are needed, one for each screen. */
import { BASE } from "./router.svelte";

type Load = () => Promise<unknown>;

/** Milliseconds that the browser may let an idle moment wait. */
const IDLE_MAX = 5000;

/** Load them one after the other while the browser is idle; returns how to stop that. One that fails is needed later, or not. */
export function preload(loads: readonly Load[]): () => void {
  let stopped = false;
  const next = async (index: number) => {
    await idle();
    if (stopped || index >= loads.length) return;
    await loads[index]!().catch(() => undefined);
    await next(index + 1);
  };
  void next(0);
  return () => (stopped = true);
}

/** Whether the service delivers the page: asked of the service, not of a cache. */
export async function reachable(): Promise<boolean> {
  if (!navigator.onLine) return false;
  try {
    return (await fetch(`${BASE}/index.html`, { method: "HEAD", cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

/** Safari has no `requestIdleCallback`. */
function idle(): Promise<void> {
  return new Promise((resolve) => ("requestIdleCallback" in globalThis ? requestIdleCallback(() => resolve(), { timeout: IDLE_MAX }) : setTimeout(resolve, 200)));
}
