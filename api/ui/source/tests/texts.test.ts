import { expect, test } from "vitest";
import { t } from "../src/texts";
import { catalogue } from "../src/texts/catalogue.svelte";
import { de } from "../src/texts/de";
import { en } from "../src/texts/en";

const sources = Object.entries(import.meta.glob<string>("../src/**/*.{svelte,ts}", { query: "?raw", import: "default", eager: true }));

test("a text with two forms follows its number, in the language of the page", async () => {
  expect([t("proxies.n", { n: 1 }), t("proxies.n", { n: 1200 })]).toEqual(["1 proxy", "1,200 proxies"]);
  await catalogue.choose("de");
  expect(t("proxies.n", { n: 1200 })).toBe("1.200 Proxys");
  await catalogue.choose("en");
});

test("both languages name the same values in each text", () => {
  const values = (text: string) => [...new Set(text.match(/\{\w+\}/g))].sort();
  for (const [area, texts] of Object.entries(en))
    for (const [key, text] of Object.entries(texts as Record<string, string>))
      expect([area, key, values((de as never as Record<string, Record<string, string>>)[area]![key]!)]).toEqual([area, key, values(text)]);
});

test("no source shows markup from elsewhere, evaluates texts or keeps secrets in the browser", () => {
  expect(sources.length).toBeGreaterThan(50);
  for (const [name, source] of sources) {
    expect([name, /\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\(/.test(source)]).toEqual([name, false]);
    expect([name, /sessionStorage|indexedDB|document\.cookie/.test(source)]).toEqual([name, false]);
    if (!name.endsWith("lib/kept.ts")) expect([name, source.includes("localStorage")]).toEqual([name, false]);
    expect([name, / style="/.test(source)]).toEqual([name, false]);
  }
});
