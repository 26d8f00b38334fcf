/** One task at a time over all tabs (Web Locks); without TLS on a name other than localhost, in this tab alone. */
export function held<T>(name: string, task: () => Promise<T>): Promise<T> {
  if (typeof navigator === "undefined" || !("locks" in navigator) || navigator.locks === undefined) return task();
  return navigator.locks.request(name, task) as Promise<T>;
}
