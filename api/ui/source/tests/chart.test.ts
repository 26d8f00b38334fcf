import { expect, test } from "vitest";
import { brief } from "../src/lib/brief";

test.each([
  ["512.00 ms", "512 ms"],
  ["1.50 %", "1.5 %"],
  ["1.05 s", "1.05 s"],
  ["1,000 B/s", "1,000 B/s"],
  ["10", "10"],
  ["1,024.00 MB", "1,024 MB"],
  ["0.0 ms", "0 ms"],
])("the axis writes %s as %s", (text, short) => expect(brief(text)).toBe(short));
