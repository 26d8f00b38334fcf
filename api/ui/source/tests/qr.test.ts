import { expect, test } from "vitest";
import { pathOf, qrCode } from "../src/screens/accounts/qr";

const drawn = (text: string) => qrCode(text)!.map((row) => row.map((dark) => (dark ? "#" : ".")).join(""));
async function digest(text: string): Promise<string> {
  const found = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(drawn(text).join("\n")));
  return [...new Uint8Array(found, 0, 8)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

test("the smallest code is that of another encoder (python-qrcode, level M, mask 0), module by module", () => {
  expect(drawn("http://a:b@c:1")).toEqual([
    "#######..####.#######", "#.....#.##..#.#.....#", "#.###.#..####.#.###.#", "#.###.#....##.#.###.#", "#.###.#.##..#.#.###.#", "#.....#..#.#..#.....#",
    "#######.#.#.#.#######", ".........#...........", "#.#.#.#..#..#...#..#.", "..#.....##..##.##...#", "..#.#####...#####.###", "#....#..#.####..#..#.",
    ".#...##.#.#..#.#.#...", "........##..#####..##", "#######..##.#...#.###", "#.....#..#..#...#..##", "#.###.#.#...#..#.#.#.", "#.###.#...####.###.#.",
    "#.###.#.#####...#.#.#", "#.....#...##...###.#.", "#######.#...#.#..#.##",
  ]);
});

test("so are larger ones: with patterns of alignment, with their version, with longer lengths and blocks of two lengths", async () => {
  const texts = ["http://alice:pw@proxy.example.com:3128", `http://u:${"x".repeat(100)}@h:1`, `http://u:${"y".repeat(200)}@h:1`, `http://${"z".repeat(400)}`, `http://${"z".repeat(659)}`];
  expect(await Promise.all(texts.map(async (text) => [qrCode(text)!.length, await digest(text)]))).toEqual([[29, "2c34a79b31605bda"], [45, "cb61f0a6ccbd6531"], [57, "cad468fa13828257"], [77, "ff72d0b1adb96caf"], [97, "dd7694e80a4aca66"]]);
});

test("bytes are those of UTF-8, and a text that is too long has no code", () => {
  expect(qrCode("ä".repeat(7))!.length).toBe(21);
  expect(qrCode("ä".repeat(8))!.length).toBe(25);
  expect([qrCode("z".repeat(666))?.length, qrCode("z".repeat(667))]).toEqual([97, null]);
});

test("each dark module is a square of the path", () => expect(pathOf([[true, false], [false, true]])).toBe("M0 0h1v1h-1zM1 1h1v1h-1z"));
