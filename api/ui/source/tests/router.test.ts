import { describe, expect, test } from "vitest";
import { screenAt } from "../src/areas";
import { placed } from "../src/lib/places";
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

test.each([
  ["/pools", "/proxies/pools", "pools"],
  ["/pools/exits", "/proxies/pools/exits", "pools"],
  ["/plans/new", "/accounts/plans/new", "plans"],
  ["/usage?by=plan", "/accounts/usage?by=plan", "usage"],
  ["/policies", "/rules", "policies"],
  ["/policies/new?block=a.example", "/rules/policies/new?block=a.example", "policies"],
  ["/lists/lst_1", "/rules/lists/lst_1", "lists"],
  ["/connections?user=ada", "/live?user=ada", "connections"],
  ["/history?username=ada", "/changes?username=ada", "changes"],
  ["/history/12?object=prx_1", "/changes?open=12&object=prx_1", "changes"],
  ["/audit?request_id=req_1&range=1y", "/changes?request_id=req_1&range=1y", "changes"],
  ["/users/usr_1", "/settings/users/usr_1", "users"],
  ["/webhooks/wh_1/history", "/settings/webhooks/wh_1/history", "webhooks"],
  ["/resolver", "/settings/resolver", "resolver"],
  ["/transfer", "/settings/transfer", "transfer"],
  ["/keys", "/account", "account"],
  ["/sessions", "/account", "account"],
  ["/settings/keys?q=dns", "/settings/all?q=dns", "settings"],
  ["/settings/history", "/changes?kind=settings", "changes"],
  ["/proxies/pools", "/proxies/pools", "pools"],
  ["/proxies/prx_1/log", "/proxies/prx_1/log", "proxies"],
  ["/usages", "/usages", undefined],
])("%s is at %s now", (before, now, area) => {
  expect(placed(before)).toBe(now);
  expect(placed(now)).toBe(now);
  expect(screenAt(now.split("?")[0]!)?.area.key).toBe(area);
});
