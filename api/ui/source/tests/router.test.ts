import { describe, expect, test } from "vitest";
import { match, url } from "../src/lib/router.svelte";

describe("match", () => {
  test.each([
    ["/", "/", {}],
    ["/proxies", "/proxies", {}],
    ["/proxies/:id/:tab?", "/proxies/prx_1", { id: "prx_1" }],
    ["/proxies/:id/:tab?", "/proxies/prx_1/log", { id: "prx_1", tab: "log" }],
    ["/proxies/new", "/proxies/prx_1", null],
    ["/proxies", "/proxies/prx_1", null],
    ["/proxies/:id", "/proxies", null],
    ["/", "/proxies", null],
  ])("%s of %s", (pattern, path, params) => expect(match(pattern, path)).toEqual(params));
});

test("an address has no empty parameters, and others are encoded", () => {
  expect(url("/proxies", { q: "a b&c", tag: "", page: undefined, n: 2 })).toBe("/ui/proxies?q=a+b%26c&n=2");
  expect(url("/")).toBe("/ui/");
});
