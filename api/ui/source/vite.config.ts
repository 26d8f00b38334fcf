import { svelte } from "@sveltejs/vite-plugin-svelte";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

const here = dirname(fileURLToPath(import.meta.url));

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
 * The parts of the program: what the first screen needs, and the screens of each group of the navigation. Many small
 * files compress badly, and each is a request.
 */
const PARTS = [
  { name: "first", priority: 1, test: /node_modules|src\/(lib|components|api)\/|src\/texts\/(en|[^/]+$)|src\/[^/]+$|screens\/(overview|sign-in)\// },
  { name: "accounts", test: /screens\/(accounts?|me|plans|usage)\// },
  { name: "rules", test: /screens\/(policies|lists|pools|objects)\// },
  { name: "traffic", test: /screens\/(proxies|connections|logs)\// },
  { name: "system", test: /screens\/(users|keys|sessions|webhooks|history|settings|transfer|resolver)\// },
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
        cssHash: ({ hash, filename }) => `s-${hash(relative(here, filename))}`,
      },
    }),
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
