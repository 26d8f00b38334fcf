// Puts a gzip and a brotli form beside each file of a folder that gets smaller; with --sizes it prints sizes only.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const TEXT = /\.(js|css|html|svg|txt)$/;
const sizesOnly = process.argv[2] === "--sizes";
const folder = process.argv.at(-1);

const files = readdirSync(folder, { recursive: true }).filter((name) => TEXT.test(name)).sort();
let total = 0;
for (const name of files) {
  const raw = readFileSync(join(folder, name));
  const gzip = gzipSync(raw, { level: 9 });
  if (/\.(js|css|html)$/.test(name)) total += gzip.length;
  if (!sizesOnly && gzip.length < raw.length) {
    writeFileSync(join(folder, `${name}.gz`), gzip);
    writeFileSync(join(folder, `${name}.br`), brotliCompressSync(raw, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }));
  }
}
if (sizesOnly) console.log(`${files.length} files, ${(total / 1000).toFixed(1)} kB with gzip`);
