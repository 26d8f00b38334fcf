import { describe, expect, test } from "vitest";
import tokens from "../src/styles/tokens.css?raw";

/** What stands beside each other in a chart, on `--surface`. */
const PAIRS = [["--data", "--data-pair"], ["--data", "--refused"], ["--failed", "--refused"]] as const;
/** All colours of charts. */
const DRAWN = [...new Set(PAIRS.flat()), "--series-2", "--series-3", "--series-4", "--series-5"];
/** How the three cones see with one kind of them missing (Machado, Oliveira and Fernandes 2009), of linear light. */
const EYES = {
  protanopia: [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
  deuteranopia: [[0.367, 0.861, -0.228], [0.28, 0.673, 0.047], [-0.012, 0.043, 0.969]],
  tritanopia: [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
  achromatopsia: [[0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722]],
};

function colour(name: string, theme: number): number[] {
  const hex = new RegExp(`${name}: light-dark\\((#[0-9a-f]{6}), (#[0-9a-f]{6})\\)`).exec(tokens)![theme + 1]!;
  return [1, 3, 5].map((at) => linear(Number.parseInt(hex.slice(at, at + 2), 16) / 255));
}
const linear = (value: number) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
const light = ([red, green, blue]: number[]) => 0.2126 * red! + 0.7152 * green! + 0.0722 * blue!;
const seen = (matrix: number[][], rgb: number[]) => matrix.map((row) => Math.min(1, Math.max(0, row.reduce((sum, each, at) => sum + each * rgb[at]!, 0))));
/** Degrees. */
function hue([red, green, blue]: number[]): number {
  return (Math.atan2(Math.sqrt(3) * (green! - blue!), 2 * red! - green! - blue!) * 180) / Math.PI;
}
const apart = (one: number, other: number) => Math.abs(((one - other + 540) % 360) - 180);
/** The contrast of WCAG, of 1 to 21. */
function contrast(one: number[], other: number[]): number {
  const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b) as [number, number];
  return (bright + 0.05) / (dark + 0.05);
}

describe.each([["light", 0], ["dark", 1]] as const)("in the %s theme", (_name, theme) => {
  test.each(PAIRS)("%s and %s differ for everybody", (one, other) => {
    for (const [kind, matrix] of Object.entries(EYES)) expect(contrast(seen(matrix, colour(one, theme)), seen(matrix, colour(other, theme))), kind).toBeGreaterThan(2);
  });
  test("who prefers more contrast gets text with more of it", () => {
    const preferred = /prefers-contrast: more\)\s*{\s*:root\s*{([^}]*)}/.exec(tokens)![1]!.replace(/\s+/g, " ").trim();
    expect(preferred).toBe("--border: var(--border-strong); --muted: var(--text-2);"); // borders are no text
    for (const behind of ["--bg", "--surface", "--raised", "--sunken", "--hover", "--neutral-soft"]) expect(contrast(colour("--text-2", theme), colour(behind, theme)), behind).toBeGreaterThan(contrast(colour("--muted", theme), colour(behind, theme)));
  });
  test.each(DRAWN)("%s is seen on a card", (name) => expect(contrast(colour(name, theme), colour("--surface", theme))).toBeGreaterThanOrEqual(3));
  test("what is drawn has another colour than what acts", () => {
    for (const name of DRAWN) expect(apart(hue(colour(name, theme)), hue(colour("--accent", theme))), name).toBeGreaterThan(20);
  });
});
