/** Where a screen lies that had another address before, and those of objects by the path that the API has for them. */

/** The first part of an address, with all that is below it. */
const BELOW: Record<string, string> = {
  "/pools": "/proxies/pools",
  "/plans": "/accounts/plans",
  "/usage": "/accounts/usage",
  "/policies": "/rules/policies",
  "/lists": "/rules/lists",
  "/users": "/settings/users",
  "/webhooks": "/settings/webhooks",
  "/resolver": "/settings/resolver",
  "/transfer": "/settings/transfer",
};
/** These addresses alone. */
const EXACT: Record<string, string> = {
  "/policies": "/rules",
  "/rules/policies": "/rules",
  "/connections": "/live",
  "/history": "/changes",
  "/audit": "/changes",
  "/keys": "/account",
  "/sessions": "/account",
  "/settings/live": "/settings",
  "/settings/keys": "/settings/all",
  "/settings/history": "/changes?kind=settings",
};

/** The address of now, for a path below `/ui` that may have a query string. */
export function placed(target: string): string {
  const at = target.indexOf("?");
  const [path, query] = at < 0 ? [target, ""] : [target.slice(0, at), target.slice(at + 1)];
  const revision = /^\/history\/([^/]+)$/.exec(path)?.[1];
  const first = /^\/[^/]*/.exec(path)?.[0] ?? "";
  const below = BELOW[first];
  const to = revision ? `/changes?open=${revision}` : EXACT[path] ?? (below ? below + path.slice(first.length) : path);
  return query ? `${to}${to.includes("?") ? "&" : "?"}${query}` : to;
}
