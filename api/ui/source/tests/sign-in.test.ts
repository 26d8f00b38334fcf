import { expect, test } from "vitest";
import { wayBack } from "../src/screens/sign-in/sign-in";

test.each([
  ["/proxies?q=a%20b&tag=x", "/ui/proxies?q=a%20b&tag=x"],
  ["/", "/ui/"],
  ["/sign-in?error=expired", "/ui/"],
  ["//evil.example", "/ui/"],
  ["/\\evil.example", "/ui/"],
  ["/../api/v1/auth/logout", "/ui/"],
  ["/a b", "/ui/"],
  ["/%2e%2e/x", "/ui/"],
  [`/logs?q=${"a".repeat(2000)}`, "/ui/"],
])("a sign-in that begins at %s comes back to %s", (here, path) => {
  expect(wayBack(here)).toBe(path);
});
