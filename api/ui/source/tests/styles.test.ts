import { expect, test } from "vitest";

const sources = Object.entries(import.meta.glob<string>(["../src/**/*.svelte", "../src/components/*.ts"], { query: "?raw", import: "default", eager: true }));
/** What there are tokens for; a radius of a pixel or two is of what is drawn. */
const RAW = {
  "size of type": /font(?:-size)?:[^;}]*?[^/\d.]\d+(?:\.\d+)?(?:px|r?em)|["'`]\d+px /g,
  radius: /border-radius: (?:[3-9]|\d\d)px/g,
  colour: /[ :,("'](?:#(?:[\da-f]{3,4}|[\da-f]{6}|[\da-f]{8})\b|(?:rgb|hsl|oklch)a?\(\d)/gi,
};

test.each(Object.entries(RAW))("each %s is a token: styles/tokens.css has them all", (_what, raw) => {
  expect(sources.length).toBeGreaterThan(100);
  expect(sources.flatMap(([path, source]) => (source.match(raw) ?? []).map((found) => `${path}: ${found}`))).toEqual([]);
});
