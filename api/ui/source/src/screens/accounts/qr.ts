/**
 * QR codes (ISO/IEC 18004) of a text, in bytes (UTF-8), with the error correction M: up to 15 % of it may be unreadable. Readers take
 * any mask, so it is always the first one.
 */

/** Of the versions from 1 on: codewords for the error correction of each block, and blocks. A larger one is no code for a screen. */
const CORRECTION = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26];
const BLOCKS = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16];
/** The level M and the first mask, as a code has them (15 bits with their own correction). */
const FORMAT = 0x5412;

/** Its modules by row and column, true for dark ones; null for a text that is too long. */
export function qrCode(text: string): boolean[][] | null {
  const bytes = [...new TextEncoder().encode(text)];
  const version = CORRECTION.findIndex((_, index) => bytes.length + (index < 9 ? 2 : 3) <= capacity(index + 1)) + 1;
  return version === 0 ? null : drawn(version, interleaved(version, codewords(version, bytes)));
}

/** The path of an SVG in which each module is a unit. */
export function pathOf(modules: readonly (readonly boolean[])[]): string {
  return modules.flatMap((row, y) => row.flatMap((dark, x) => (dark ? [`M${x} ${y}h1v1h-1z`] : []))).join("");
}

const sizeOf = (version: number) => 17 + 4 * version;
const alignments = (version: number) => (version === 1 ? 0 : Math.floor(version / 7) + 2);
const capacity = (version: number) => total(version) - CORRECTION[version - 1]! * BLOCKS[version - 1]!;

/** Codewords of data and correction. */
function total(version: number): number {
  const n = alignments(version);
  const patterns = n ? (25 * n - 10) * n - 55 + (version >= 7 ? 36 : 0) : 0;
  return Math.floor(((16 * version + 128) * version + 64 - patterns) / 8);
}

/** Mode and length, the bytes, and what fills the rest. */
function codewords(version: number, bytes: readonly number[]): number[] {
  const written = (value: number, width: number) => value.toString(2).padStart(width, "0");
  const bits = `0100${written(bytes.length, version < 10 ? 8 : 16)}${bytes.map((byte) => written(byte, 8)).join("")}0000`;
  const found = bits.match(/.{8}/g)!.map((byte) => parseInt(byte, 2));
  return Array.from({ length: capacity(version) }, (_, index) => found[index] ?? ((index - found.length) % 2 ? 0x11 : 0xec));
}

/** The codewords in blocks, each with its correction, by turns. */
function interleaved(version: number, data: readonly number[]): number[] {
  const [blocks, correction] = [BLOCKS[version - 1]!, CORRECTION[version - 1]!];
  const [short, longer] = [Math.floor(data.length / blocks), data.length % blocks];
  const divisor = generator(correction);
  const parts = Array.from({ length: blocks }, (_, index) => {
    const long = Math.max(0, index - (blocks - longer));
    return data.slice(index * short + long, (index + 1) * short + long + (index >= blocks - longer ? 1 : 0));
  });
  const byTurns = (rows: readonly number[][], length: number) => Array.from({ length }, (_, place) => rows.flatMap((row) => row.slice(place, place + 1))).flat();
  return [...byTurns(parts, short + 1), ...byTurns(parts.map((part) => remainder(part, divisor)), correction)];
}

/** In the field of 256 elements of these codes. */
function times(a: number, b: number): number {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) product = (product << 1) ^ ((product >> 7) * 0x11d) ^ (((b >> bit) & 1) * a);
  return product;
}

/** The polynomial whose roots are the first powers of 2, without its leading 1. */
function generator(degree: number): number[] {
  const found = [...Array<number>(degree - 1).fill(0), 1];
  for (let power = 0, root = 1; power < degree; power += 1, root = times(root, 2))
    for (let place = 0; place < degree; place += 1) found[place] = times(found[place]!, root) ^ (found[place + 1] ?? 0);
  return found;
}

function remainder(data: readonly number[], divisor: readonly number[]): number[] {
  const found = divisor.map(() => 0);
  for (const byte of data) {
    const factor = byte ^ found.shift()!;
    found.push(0);
    divisor.forEach((each, place) => (found[place]! ^= times(each, factor)));
  }
  return found;
}

/** The patterns of a version, and the data in the modules that are left, in columns of two from the right, up and down. */
function drawn(version: number, data: readonly number[]): boolean[][] {
  const size = sizeOf(version);
  const found = Array.from({ length: size }, () => Array<boolean | undefined>(size).fill(undefined));
  const set = (x: number, y: number, dark: boolean) => {
    if (x >= 0 && x < size && y >= 0 && y < size) found[y]![x] ??= dark;
  };
  const bit = (value: number, place: number) => ((value >> place) & 1) === 1;
  const square = (x: number, y: number, reach: number, light: readonly number[]) => {
    for (let dy = -reach; dy <= reach; dy += 1) for (let dx = -reach; dx <= reach; dx += 1) set(x + dx, y + dy, !light.includes(Math.max(Math.abs(dx), Math.abs(dy))));
  };
  for (const [x, y] of [[3, 3], [size - 4, 3], [3, size - 4]] as const) square(x, y, 4, [2, 4]);
  const places = centres(version, size);
  for (const x of places) for (const y of places) if (found[y]![x] === undefined) square(x, y, 2, [1]);
  for (let place = 0; place < 15; place += 1) {
    const dark = bit(FORMAT, place);
    if (place < 8) set(8, place + (place > 5 ? 1 : 0), dark);
    else set(place === 8 ? 7 : 14 - place, 8, dark);
    if (place < 8) set(size - 1 - place, 8, dark);
    else set(8, size - 15 + place, dark);
  }
  set(8, size - 8, true);
  if (version >= 7) {
    let rest = version;
    for (let place = 0; place < 12; place += 1) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
    for (let place = 0; place < 18; place += 1) {
      const [long, short, dark] = [size - 11 + (place % 3), Math.floor(place / 3), bit((version << 12) | rest, place)];
      set(long, short, dark);
      set(short, long, dark);
    }
  }
  for (let place = 8; place < size - 8; place += 1) {
    set(place, 6, place % 2 === 0);
    set(6, place, place % 2 === 0);
  }
  let next = 0;
  for (let right = size - 1; right > 0; right -= right === 8 ? 3 : 2)
    for (let row = 0; row < size; row += 1)
      for (const x of [right, right - 1]) {
        const y = (right + 1) & 2 ? row : size - 1 - row;
        if (found[y]![x] !== undefined) continue;
        found[y]![x] = bit(data[next >> 3] ?? 0, 7 - (next & 7)) !== ((x + y) % 2 === 0);
        next += 1;
      }
  return found as boolean[][];
}

/** Where patterns of alignment are, by both axes. */
function centres(version: number, size: number): number[] {
  const n = alignments(version);
  const step = Math.ceil((4 * version + 4) / (2 * n - 2)) * 2;
  return Array.from({ length: n }, (_, index) => (index === 0 ? 6 : size - 7 - (n - 1 - index) * step));
}
