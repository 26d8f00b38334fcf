import { svelte } from "@sveltejs/vite-plugin-svelte";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = dirname(fileURLToPath(import.meta.url));
/** Each has a class for its styles, whose name is its place here: names of hashes weigh more. */
const components = readdirSync(here, { recursive: true, encoding: "utf8" }).filter((path) => path.startsWith("src") && path.endsWith(".svelte")).sort();

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

/**
 * Texts of another language come to the browser without their keys, in the order of these: a third of their bytes.
 * `src/texts/catalogue.svelte.ts` puts both together.
 */
function textsWithoutKeys(): Plugin {
  return {
    name: "texts-without-keys",
    apply: "build",
    enforce: "post",
    transform(code, id) {
      if (!/src\/texts\/de\/(?!index)[^/]+\.ts$/.test(id)) return;
      const areas = this.parse(code).body.flatMap((each) =>
        each.type === "ExportNamedDeclaration" && each.declaration?.type === "VariableDeclaration" ? each.declaration.declarations : []);
      const lines = areas.map(({ id: name, init }) => {
        if (name.type !== "Identifier" || init?.type !== "ObjectExpression") throw new Error(`${id}: texts are objects`);
        const texts = init.properties.map((each) => {
          if (each.type !== "Property" || each.value.type !== "Literal") throw new Error(`${id}: ${name.name} has more than texts`);
          const key = each.key.type === "Identifier" ? each.key.name : each.key.type === "Literal" ? String(each.key.value) : "";
          return [key, each.value.value] as const;
        });
        const inOrder = texts.sort(([one], [other]) => (one < other ? -1 : 1)).map(([, text]) => text);
        return `export const ${name.name} = ${JSON.stringify(inOrder)};`;
      });
      return { code: lines.join("\n"), map: null };
    },
  };
}

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
  test: { css: true }, // colours are tested
  root: here,
  base: "/ui/",
  plugins: [
    svelte({
      configFile: false,
      compilerOptions: {
        runes: true,
        // The same classes wherever the checkout lies.
        cssHash: ({ filename }) => `_${components.indexOf(relative(here, filename)).toString(36)}`,
      },
    }),
    textsWithoutKeys(),
    licenses(),
  ],
  build: {
    target: ["chrome123", "firefox121", "safari17.5"],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
    reportCompressedSize: false,
    rolldownOptions: { output: { advancedChunks: { groups: PARTS } } },
  },
  server: { proxy: { "/api": process.env.PROXYFLEET_URL ?? "http://127.0.0.1:8080" } },
});
