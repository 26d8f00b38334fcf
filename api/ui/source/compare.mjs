// Compares a new build with the committed one: the same files with the same bytes, and compressed forms that hold them.
// The compressed bytes themselves may differ between versions of Node.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { brotliDecompressSync, gunzipSync } from "node:zlib";

const [built, committed] = process.argv.slice(2);
const list = (folder) =>
  existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile()) : [];
const names = (folder) => new Set(list(folder).map((each) => join(each.parentPath, each.name).slice(folder.length + 1)));
const plain = (found) => [...found].filter((name) => !/\.(gz|br)$/.test(name));

const fresh = names(built);
const kept = names(committed);
const problems = [];
for (const name of plain(fresh)) if (!kept.has(name)) problems.push(`${name}: not committed`);
for (const name of plain(kept)) {
  const content = readFileSync(join(committed, name));
  if (!fresh.has(name)) problems.push(`${name}: no longer made`);
  else if (!content.equals(readFileSync(join(built, name)))) problems.push(`${name}: differs`);
  for (const [suffix, unpack] of [[".gz", gunzipSync], [".br", brotliDecompressSync]]) {
    if (kept.has(name + suffix) && !unpack(readFileSync(join(committed, name + suffix))).equals(content))
      problems.push(`${name}${suffix}: holds something else`);
  }
}
for (const problem of problems) console.error(problem);
if (problems.length) {
  console.error("api/ui/static is not what api/ui/source makes; run scripts/build-ui");
  process.exit(1);
}
