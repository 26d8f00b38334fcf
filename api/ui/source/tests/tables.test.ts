import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { areaOf, beatsOf, cellsOf, sumOf } from "../src/components/recent";
import { cutOf, fitting, isRoomy, Shown, sorted, tracksOf, type Column } from "../src/components/table.svelte";
import { everyPage } from "../src/lib/cursor.svelte";
import { Opened } from "../src/lib/opened.svelte";
import { router } from "../src/lib/router.svelte";

interface Row { name: string; n: number | null }
const COLUMNS: Column<Row>[] = [
  { key: "name", title: "Name", value: (row) => row.name },
  { key: "n", title: "N", value: (row) => row.n, card: "hide" },
  { key: "more", title: "More" },
  { key: "text", title: "Text", text: (row) => row.name },
  { key: "unit", title: "Unit", align: "right", text: (row) => `${row.n} MB` },
];

describe("the widths of columns", () => {
  const columns = [{ key: "name", width: "minmax(150px, 2fr)" }, { key: "state", width: "120px" }, { key: "other" }];

  test("are those of the declaration until it is known what the cells need", () => {
    expect(tracksOf(columns, {})).toEqual(["minmax(150px, 2fr)", "120px", "minmax(90px, 1fr)"]);
  });
  test("are what the cells need, and texts share what is left by that and may be cut", () => {
    expect(tracksOf(columns, { name: 260, state: 71.2, other: 60 })).toEqual(["minmax(150px, 260fr)", "72px", "minmax(60px, 60fr)"]);
  });
  test("are bounded, so that one long name leaves room and an empty column can be seen", () => {
    expect(tracksOf(columns, { name: 9000, state: 9000, other: 3 })).toEqual(["minmax(150px, 380fr)", "380px", "minmax(48px, 48fr)"]);
  });
  test("cut a text off unless there is room for all, or one is too long for any room", () => {
    const cuts = (needs: Record<string, number>, room: number) => columns.map((each) => cutOf(each, needs, isRoomy(columns, room, needs)));
    const needs = { name: 260, state: 72, other: 60 };
    expect(cuts({}, 2000)).toEqual(["cut", "cut", "cut"]);
    expect(cuts(needs, 391)).toEqual(["cut", false, "cut"]);
    expect(cuts(needs, 392)).toEqual(["fits", false, "fits"]);
    expect(cuts({ ...needs, state: 9000 }, 2000)).toEqual(["cut", "cut", "cut"]);
  });
});

describe("the columns that there is room for", () => {
  const columns = [{ key: "name", width: "minmax(150px, 2fr)" }, { key: "last", width: "100px", from: 500 }, { key: "live", width: "100px", from: 300 }, { key: "tags", width: "40px", from: 400 }];
  const keys = (room: number, needs = {}) => fitting(columns, room, needs).map((each) => each.key);

  test.each([
    [100, ["name"]],
    [300, ["name", "live"]],
    [400, ["name", "live", "tags"]],
    [600, ["name", "last", "live", "tags"]],
  ])("in %d pixels are those with the smallest `from`", (room, expected) => expect(keys(room)).toEqual(expected));
  test("are fewer where their cells need more", () => {
    expect(keys(600, { live: 380 })).toEqual(["name", "live", "tags"]);
    expect(keys(400, { live: 260 })).toEqual(["name"]);
  });
});

describe("the order of rows that are all here", () => {
  const rows: Row[] = [{ name: "b10", n: 3 }, { name: "b9", n: null }, { name: "a", n: 20 }];
  const names = (order: string) => sorted(rows, COLUMNS, order).map((row) => row.name);

  test.each([
    ["name", ["a", "b9", "b10"]],
    ["-name", ["b10", "b9", "a"]],
    ["n", ["b10", "a", "b9"]],
    ["-n", ["a", "b10", "b9"]],
    ["more", ["b10", "b9", "a"]],
    ["text", ["a", "b9", "b10"]],
    ["unit", ["b10", "b9", "a"]],
    ["gone", ["b10", "b9", "a"]],
  ])("by %s, with those that have no value last", (order, expected) => expect(names(order)).toEqual(expected));
});

describe("the columns that a reader chose", () => {
  const stored = new Map<string, string>();
  const keys = (shown: Shown) => shown.of(COLUMNS)?.map((each) => each.key);
  beforeEach(() => {
    stored.clear();
    router.query = new URLSearchParams("q=a");
    vi.stubGlobal("localStorage", { getItem: (key: string) => stored.get(key) ?? null, setItem: (key: string, value: string) => stored.set(key, value), removeItem: (key: string) => stored.delete(key) });
    vi.stubGlobal("scrollY", 0);
    vi.stubGlobal("history", { state: null, replaceState: vi.fn(), pushState: vi.fn(), back: vi.fn() });
  });
  afterEach(() => vi.unstubAllGlobals());

  test("are kept in the browser and, of the list of a screen, in the address, until they are reset", () => {
    const shown = new Shown("proxies", COLUMNS);
    expect(keys(shown)).toBeUndefined();
    shown.toggle("n", COLUMNS.slice(0, 1), COLUMNS);
    expect(router.query.toString()).toBe("q=a&columns=name%2Cn");
    expect(keys(shown)).toEqual(["name", "n"]);
    router.query = new URLSearchParams();
    expect(keys(new Shown("proxies", COLUMNS))).toEqual(["name", "n"]);
    expect(keys(new Shown("accounts", COLUMNS))).toBeUndefined();
    shown.reset();
    expect([router.query.toString(), stored.size, keys(shown)]).toEqual(["", 0, undefined]);
  });
  test("are those of the address first, the name among them in any case, and all of them on a card", () => {
    stored.set("proxyfleet.columns.proxies", "more");
    router.query = new URLSearchParams("columns=n");
    const shown = new Shown("proxies", COLUMNS);
    expect(keys(shown)).toEqual(["name", "n"]);
    expect(shown.of(COLUMNS)?.[1]?.card).toBe("line");
  });
  test("of a table beside others are in no address, nor lost where nothing can be stored", () => {
    vi.stubGlobal("localStorage", { getItem: () => { throw new Error("off"); }, setItem: () => { throw new Error("off"); } });
    const shown = new Shown(undefined, COLUMNS);
    shown.toggle("n", COLUMNS, COLUMNS);
    expect([keys(shown)?.slice(0, 2), router.query.toString()]).toEqual([["name", "more"], "q=a"]);
  });
  test("what is open beside a list is in the address, and is closed by the way back if it was opened here", () => {
    const drawer = new Opened();
    router.query = new URLSearchParams("q=a&open=prx_1");
    expect(drawer.id).toBe("prx_1");
    drawer.close();
    expect([drawer.id, router.query.toString()]).toEqual(["", "q=a"]);
    drawer.open("prx_2");
    expect(router.query.toString()).toBe("q=a&open=prx_2");
    drawer.close();
    expect(history.back).toHaveBeenCalledOnce();
  });
});

describe("pictures of what was counted lately", () => {
  test("a cell is grey without requests, green without a failure, red from a tenth on, and hollow where nothing is known", () => {
    expect(beatsOf([0, 9, 100, 100, null, 0], [0, 0, 9, 10, null, 2])).toEqual(["none", "good", "warn", "bad", "unknown", "bad"]);
    expect(sumOf([1, null, 2])).toBe(3);
  });
  test("the worse, the higher", () => {
    const heights = cellsOf(["none", "good", "warn", "bad"]).map(([, path]) => Number(/v-([\d.]+)h/.exec(path)![1]));
    expect(heights).toEqual([...heights].sort((one, other) => one - other));
    expect(cellsOf(["good", "bad", "good"])).toEqual([["good", expect.stringMatching(/^M0 18v-9h24V18zM64 18/)], ["bad", "M32 18v-18h24V18z"]]);
  });
  test("the largest rate is at the top, and no rate at the bottom", () => {
    expect(areaOf([0, 50, 100])).toBe("M0 18L0 18L28 9L56 0V18z");
    expect(areaOf([0, 0])).toBe("M0 18L0 18L56 18V18z");
    expect(areaOf([7])).toBe("M0 18L0 0V18z");
  });
});

test("all that match are those of all pages", async () => {
  const pages: Record<string, { rows: number[]; next: string | null }> = { "": { rows: [1, 2], next: "a" }, a: { rows: [], next: "b" }, b: { rows: [3], next: null } };
  expect(await everyPage(async (cursor) => pages[cursor ?? ""]!)).toEqual([1, 2, 3]);
});
