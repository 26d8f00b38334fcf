import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../src/api/errors";
import { ON_FOCUS, Poll } from "../src/lib/poll.svelte";

const away = () => new ApiError({ status: 0, code: "UNREACHABLE", message: "", requestId: null, details: null });
const refused = (status: number, details: unknown = null) => new ApiError({ status, code: "X", message: "no", requestId: "r", details });
const page = { hidden: false };

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("document", page);
  page.hidden = false;
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A poll every second whose requests end as `ends` says, one after the other. */
function polled(ends: (number | ApiError)[]) {
  let asked = 0;
  const ask = () => {
    const end = ends[Math.min(asked++, ends.length - 1)]!;
    return typeof end === "number" ? Promise.resolve(end) : Promise.reject(end);
  };
  return { poll: new Poll<number>(ask, () => 1000), asked: () => asked };
}

test("it asks again after its interval, until it is stopped", async () => {
  const { poll, asked } = polled([1, 2]);
  await poll.restart();
  expect([poll.data, poll.loading, asked()]).toEqual([1, false, 1]);
  await vi.advanceTimersByTimeAsync(1000);
  expect([poll.data, asked()]).toEqual([2, 2]);
  poll.stop();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(asked()).toBe(2);
});

test("what was loaded stays while the service is away, with the time of the last success, and the pauses grow", async () => {
  const { poll, asked } = polled([7, away(), away(), away(), 8]);
  await poll.restart();
  const success = Date.now();
  await vi.advanceTimersByTimeAsync(1000);
  expect([poll.data, poll.error?.status, poll.failingSince, asked()]).toEqual([7, 0, success, 2]);
  await vi.advanceTimersByTimeAsync(1999);
  expect(asked()).toBe(2);
  await vi.advanceTimersByTimeAsync(1);
  expect(asked()).toBe(3);
  await vi.advanceTimersByTimeAsync(4000 + 8000);
  expect([poll.data, poll.error, poll.failingSince]).toEqual([8, null, null]);
  poll.stop();
});

test("it waits as long as the service asks for", async () => {
  const { poll, asked } = polled([refused(429, { retry_after: 60 }), 1]);
  await poll.restart();
  await vi.advanceTimersByTimeAsync(59_999);
  expect(asked()).toBe(1);
  await vi.advanceTimersByTimeAsync(1);
  expect(asked()).toBe(2);
  poll.stop();
});

test.each([400, 403, 404])("a %d ends it: another attempt would change nothing", async (status) => {
  const { poll, asked } = polled([refused(status)]);
  await poll.restart();
  await vi.advanceTimersByTimeAsync(60_000);
  expect([poll.error?.status, asked()]).toEqual([status, 1]);
});

test("a hidden page asks nothing", async () => {
  const { poll, asked } = polled([1]);
  page.hidden = true;
  await poll.restart();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(asked()).toBe(1);
});

test("a new request aborts the one before, whose late response is dropped", async () => {
  const ends: ((value: number) => void)[] = [];
  const signals: AbortSignal[] = [];
  const poll = new Poll<number>((signal) => (signals.push(signal), new Promise((end) => ends.push(end))), () => 0);
  const first = poll.restart();
  const second = poll.refresh();
  expect(signals.map((signal) => signal.aborted)).toEqual([true, false]);
  ends[1]!(2);
  ends[0]!(1);
  await Promise.all([first, second]);
  expect(poll.data).toBe(2);
});

test("what is asked once, such as what a form edits, is not asked anew when the tab is seen again", async () => {
  let asked = 0;
  const once = new Poll(async () => ++asked, () => 0);
  await once.restart();
  once.seen(false);
  once.seen(true);
  expect([once.data, asked]).toEqual([1, 1]);
  const { poll, asked: repeated } = polled([1, 2]);
  await poll.restart();
  poll.seen(false);
  poll.seen(true);
  await vi.advanceTimersByTimeAsync(0);
  expect([poll.data, repeated()]).toEqual([2, 2]);
});

test("what changes by the hour is asked again when its window is looked at, and until a failure is over", async () => {
  const [tab, window] = [Object.assign(new EventTarget(), page), new EventTarget()];
  vi.stubGlobal("document", tab);
  vi.stubGlobal("window", window);
  const ends = [1, 2, away(), 3, 4];
  let asked = 0;
  const poll = new Poll<number>(() => {
    const end = ends[asked++]!;
    return typeof end === "number" ? Promise.resolve(end) : Promise.reject(end);
  }, () => ON_FOCUS);
  await poll.restart();
  const stop = poll.watch();
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect([poll.data, asked]).toEqual([1, 1]);
  window.dispatchEvent(new Event("focus"));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect([poll.data, asked]).toEqual([2, 2]);
  tab.dispatchEvent(new Event("visibilitychange"));
  await vi.advanceTimersByTimeAsync(4000);
  expect([poll.data, poll.error, asked]).toEqual([3, null, 4]);
  stop();
  window.dispatchEvent(new Event("focus"));
  tab.dispatchEvent(new Event("visibilitychange"));
  await vi.advanceTimersByTimeAsync(3_600_000);
  expect(asked).toBe(4);
});
