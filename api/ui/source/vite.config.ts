import { svelte } from "@sveltejs/vite-plugin-svelte";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { runnerImport, type Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { byNumber, unfolding } from "./texts-by-number.ts";

const here = dirname(fileURLToPath(import.meta.url));
const sources = readdirSync(here, { recursive: true, encoding: "utf8" })
  .filter((path) => /^src\/(?!texts\/).*(\.svelte|(?<!\.d)\.ts)$/.test(path))
  .sort();
/** Each has a class for its styles, whose name is its place here: names of hashes weigh more. */
const components = sources.filter((path) => path.endsWith(".svelte"));

/** LICENSES.txt: the text of each package that is in the build. */
function licenses(): Plugin {
  return {
    name: "licenses",
    apply: "build",
    generateBundle() {
      const folders = new Set<string>();
      for (const id of this.getModuleIds()) {
        const found = /^(.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(id.replace(/^\0/, ""));
        if (found?.[1] && existsSync(join(found[1], "package.json"))) folders.add(found[1]);
      }
      const texts = [...folders].sort().map((folder) => {
        const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
        const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
        const text = file ? readFileSync(join(folder, file), "utf8").trim() : `License: ${about.license}`;
        return `${about.name} ${about.version} (${about.license})\n\n${text}\n`;
      });
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: texts.join(`\n${"-".repeat(80)}\n\n`) });
    },
  };
}

/** Texts as `texts-by-number.ts` has them. */
function textsByNumber(): Plugin {
  const made: Record<string, string> = {};
  let numbered: (source: string, catalogue: string) => string;
  return {
    name: "texts-by-number",
    apply: "build",
    enforce: "pre",
    async configResolved() {
      const languages = ["en", "de"].map((language) => `src/texts/${language}/index.ts`);
      const all = await Promise.all(languages.map((path) => runnerImport<{ texts: Record<string, string> }>(join(here, path), { configFile: false })));
      const { order, names, ...rest } = byNumber(Object.keys(all[0]!.module.texts), sources.map((path) => readFileSync(join(here, path), "utf8")));
      numbered = rest.numbered;
      all.forEach(({ module }, at) => {
        made[languages[at]!] = `import { flat } from "../flat"; export const texts = flat(${JSON.stringify(order.map((key) => module.texts[key]))});`;
      });
      const { module } = await runnerImport<{ REASONS: Record<string, Record<string, string>> }>(join(here, "src/api/reasons.ts"), { configFile: false });
      const bare = Object.entries(module.REASONS).map(([step, reasons]) => [step, Object.fromEntries(Object.keys(reasons).map((reason) => [reason, 0]))]);
      made["src/api/reasons.ts"] = `export const REASONS = ${JSON.stringify(Object.fromEntries(bare))};`; // their words are texts
      made["src/texts/flat.ts"] = `export const flat = ${unfolding(names)};`;
    },
    load: (id) => made[relative(here, id)],
    transform: (code, id) => (sources.includes(relative(here, id)) ? numbered(code, join(here, "src/texts/catalogue.svelte.ts")) : undefined),
  };
}

/** Without the names of slots, which the compiler adds for components of Svelte 4. */
const withoutSlots: Plugin = {
  name: "without-slots",
  apply: "build",
  enforce: "post",
  transform: (code, id) => (id.endsWith(".svelte") ? code.replace(/,\s*\$\$slots: \{[^{}]*\}/g, "") : undefined),
};

/**
 * The parts of the program: what the first screen needs, and the screens of each group of the navigation. Many small
 * files compress badly, and each is a request.
 */
const PARTS = [
  { name: "first", priority: 1, test: /node_modules|src\/(lib|components|api)\/|src\/texts\/(en|[^/]+$)|src\/[^/]+$|screens\/(overview|sign-in)\// },
  { name: "objects", test: /screens\/(accounts?|me|plans|usage|policies|lists|pools|objects|proxies|connections|logs)\// },
  { name: "system", test: /screens\/(nodes|users|keys|sessions|webhooks|history|settings|transfer|resolver)\// },
];

export default defineConfig({
  test: { css: true, isolate: false }, // colours are tested; modules are loaded once for all files
  root: here,
  base: "/ui/",
  plugins: [
    textsByNumber(),
    svelte({
      configFile: false,
      compilerOptions: {
        runes: true,
        discloseVersion: false,
        // The same classes wherever the checkout lies.
        cssHash: ({ filename }) => `_${components.indexOf(relative(here, filename)).toString(36)}`,
      },
    }),
    withoutSlots,
    licenses(),
  ],
  build: {
    target: ["chrome123", "firefox121", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    reportCompressedSize: false,
    rolldownOptions: { output: { codeSplitting: { groups: PARTS } } },
  },
  server: { proxy: { "/api": process.env.PROXYFLEET_URL ?? "http://127.0.0.1:8080" } },
});
