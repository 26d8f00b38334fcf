/** Where an entry of "needs attention" is dealt with. */
import { AREAS } from "../../areas";
import { match, url } from "../../lib/router.svelte";
import { session } from "../../lib/session.svelte";
import type { Overview } from "./overview";

type Entry = Overview["attention"]["entries"][number];

const PATHS: Partial<Record<Entry["kind"], (entry: Entry) => string | null>> = {
  proxy: ({ id }) => (id ? `/proxies/${id}` : "/proxies"),
  webhook: ({ id }) => (id ? `/webhooks/${id}` : "/webhooks"),
  settings: () => "/settings",
  user: ({ id }) => (id ? `/users/${id}` : "/users"),
};

/** The address of its screen, if there is one that the user may see. */
export function placeOf(entry: Entry): string | null {
  const path = PATHS[entry.kind]?.(entry) ?? null;
  const open = path !== null && AREAS.some((area) => session.may(area.permission, area.role) && area.routes.some((route) => match(route.path, path)));
  return open ? url(path) : null;
}
