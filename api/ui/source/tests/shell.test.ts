import { expect, test } from "vitest";
import { argument, quoted } from "../src/lib/shell";

test.each(["a b", "$(touch x)", "`id`", '"', "a;b|c&d>e", "!x", "*", "~root", "a\\b", "#x", "", "über", "-x y"])("a shell expands nothing of %j", (name) => {
  expect(quoted(name)).toBe(`'${name}'`);
});

test("a quotation mark doesn't end the word", () => {
  expect(quoted("it's; id")).toBe(`'it'\\''s; id'`);
});

test("a plain name stays as it is, and none is read as an option", () => {
  expect([quoted("alice@example.com"), argument("alice"), argument("--help")]).toEqual(["alice@example.com", "alice", "-- --help"]);
});
