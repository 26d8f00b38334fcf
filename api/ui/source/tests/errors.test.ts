import { expect, test } from "vitest";
import { failure } from "../src/api/errors";
import { explained } from "../src/lib/explained";
import { catalogue } from "../src/texts/catalogue.svelte";

const response = (status: number) => new Response(null, { status, headers: { "X-Request-Id": "req-1" } });

test("the errors of several fields are found by their paths", () => {
  const errors = [{ field: "port", error: "is in use" }, { field: "settings.timeout", error: "at least 1" }];
  const error = failure(response(400), { success: false, error: { code: "INVALID_REQUEST", message: "no", details: { ...errors[0], errors } } });
  expect(error.fields).toEqual({ port: "is in use", "settings.timeout": "at least 1" });
  expect([error.status, error.code, error.requestId]).toEqual([400, "INVALID_REQUEST", "req-1"]);
});

test("what is missing is null", () => {
  const forbidden = failure(response(403), { error: { code: "FORBIDDEN", message: "no", details: { required_permission: "proxy.write" } } });
  expect(forbidden.requiredPermission).toBe("proxy.write");
  expect([forbidden.retryAfter, forbidden.fields]).toEqual([null, {}]);
  expect(failure(response(502), "<html>").message).toBe("HTTP 502");
});

test("in another language an error is what its code says, and a quotation of the service", async () => {
  const error = (status: number, code: string, details: object = {}) => explained(failure(response(status), { error: { code, message: "The list was not found", details } }));
  expect([error(500, "INTERNAL_ERROR"), error(403, "FORBIDDEN", { reason: "the key is limited" })]).toEqual(["The list was not found", "the key is limited"]);
  await catalogue.choose("de");
  expect([error(404, "NOT_FOUND"), error(500, "INTERNAL_ERROR"), error(400, "INVALID_REQUEST", { field: "port", error: "is in use" })]).toEqual(["Nicht gefunden: „The list was not found“", "„The list was not found“", "port: „is in use“"]);
  await catalogue.choose("en");
});
