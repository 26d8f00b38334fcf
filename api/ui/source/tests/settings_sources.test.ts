import { describe, expect, it } from "vitest";
import { fromWords, matching, valueWords, type SettingSource } from "../src/screens/settings/sources";

const row = (key: string, more: Partial<SettingSource> = {}): SettingSource => ({ key, value: 1, source: "default", place: null, change: "reload", waits: false, configured: null, ...more });

describe("the source of a setting", () => {
  it("is named with its place, where there is one", () => {
    expect(fromWords(row("a"))).toBe("default");
    expect(fromWords(row("a", { source: "file", place: "/etc/p.toml:3" }))).toBe("from /etc/p.toml:3");
    expect(fromWords(row("a", { source: "environment", place: "PROXYFLEET_A" }))).toBe("from the variable PROXYFLEET_A");
  });
  it("has a value that people can read", () => {
    expect([null, "", [], {}].map(valueWords)).toEqual(["–", "–", "–", "–"]);
    expect(valueWords([5, "x"])).toBe("5, x");
    expect(valueWords({ key: "***", other: true })).toBe("key = ***, other = Yes");
  });
  it("is found by key, value, place, source and change", () => {
    const rows = [row("logging.level", { value: "debug", source: "api", change: "at_once" }), row("metrics.publish", { place: "f.toml:9", source: "file", change: "restart" })];
    expect(matching(rows, "LEVEL", "", "").map((each) => each.key)).toEqual(["logging.level"]);
    expect(matching(rows, "f.toml", "", "").map((each) => each.key)).toEqual(["metrics.publish"]);
    expect(matching(rows, "", "api", "restart")).toEqual([]);
  });
});
