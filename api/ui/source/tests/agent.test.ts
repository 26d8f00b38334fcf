import { expect, test } from "vitest";
import { clientOf } from "../src/screens/sessions/agent";

const CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";

test.each([
  [CHROME, "Chrome 140 · Linux"],
  [`${CHROME} Edg/140.0.3485.54`, "Edge 140 · Linux"],
  ["Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:143.0) Gecko/20100101 Firefox/143.0", "Firefox 143 · Windows"],
  ["Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15", "Safari 26 · macOS"],
  ["Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1", "Safari 18 · iPhone"],
  ["Mozilla/5.0 (compatible; something else)", "Mozilla/5.0 (compatible; something else)"],
  ["curl/8.11.0", "curl/8.11.0"],
])("a browser has its name, version and system, and another program what it says: %s", (agent, shown) => {
  expect(clientOf(agent)).toBe(shown);
});

test("a client that says nothing has no name", () => {
  expect(clientOf(null)).toBeNull();
});
