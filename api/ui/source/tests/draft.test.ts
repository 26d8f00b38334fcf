import { expect, test } from "vitest";
import { Draft } from "../src/lib/draft.svelte";

test("the error of an entry of a list names what was sent, also when the list is another one by now", () => {
  const draft = new Draft({ data: { tls_ports: ["443", "99999"], upstreams: [{ port: 0 }] }, etag: null });
  draft.errors = { "tls_ports[1]": "must be at most 65535", "upstreams[0].port": "must be at least 1" };
  draft.value.tls_ports = ["99999", "443"];
  expect(draft.error("tls_ports")).toBe("99999: must be at most 65535");
  expect(draft.error("upstreams")).toBe("[0].port: must be at least 1");
  expect(draft.error("name")).toBeNull();
});
