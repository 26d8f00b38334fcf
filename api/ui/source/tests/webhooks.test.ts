import { expect, test } from "vitest";
import { toggled } from "../src/screens/webhooks/value";

test("the star of a category stands for its events, and for no others", () => {
  expect(toggled(["proxy.down", "user.created"], "proxy.*", true, "proxy")).toEqual(["user.created", "proxy.*"]);
  expect(toggled(["high_error_rate", "error_rate.recovered"], "error_rate.*", true, "error_rate")).toEqual(["high_error_rate", "error_rate.*"]);
});
