import { expect, test } from "vitest";
import { t } from "../src/texts";
import { catalogue } from "../src/texts/catalogue.svelte";
import { de } from "../src/texts/de";
import { en } from "../src/texts/en";
import { byNumber, folded, unfolding } from "../texts-by-number";

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

test("the build has numbers in place of the keys of texts, and names for those that are put together", () => {
  const keys = ["a.close", "a.open", "state.up", "state.down", "b.n", "b.word.x.y", "c.title"];
  const source = [
    'import { t } from "./texts";',
    'const row = { title: "c.title" };',
    't("a.close"); t(is ? "a.close" : "a.open"); t("b.n", { n: 1 }); not("a.open"); t(row.title);',
    "t(`state.${state}`); tMaybe(`b.word.${word}`, word);",
  ].join("\n");
  const { order, names, numbered } = byNumber(keys, [source]);
  expect(names).toEqual(["a.open", "state.up", "state.down", "b.word.x.y", "c.title"]);
  expect(order).toEqual([...names, "a.close", "b.n"]);
  expect(numbered(source, "at").split("\n").slice(0, 3)).toEqual([
    'import { catalogue as TEXTS } from "at"; import { t } from "./texts";',
    'const row = { title: "c.title" };',
    'TEXTS.texts[5]; TEXTS.texts[is ? 5 : 0]; t(6, { n: 1 }); not("a.open"); t(row.title);',
  ]);
  expect(numbered("import x;", "at")).toBe("import x;");
  expect(() => byNumber([...keys, "a.unused"], [source])).toThrow("no source uses these texts: a.unused");
});

test("names are folded, and are whole again in the page", () => {
  const names = ["a.flow.by", "a.flow.by.bytes", "a.flow.to", "a.up", "reason.x", "reason.x.user", "b"];
  expect(folded(names)).toBe("a.flow.by ...bytes ..to .up reason.x ..user b");
  const flat = Function(`return ${unfolding(names)}`)() as (texts: string[]) => Record<string, string>;
  expect(Object.keys(flat(names.map((_, at) => `${at}`))).filter((key) => !/^\d/.test(key))).toEqual(names);
});
