/** How a chart is drawn by uPlot, with the colours of the theme. */
import uPlot from "uplot";
import { brief } from "../lib/brief";
import { locale } from "../texts";
import type { IconName } from "./icons";

export interface Series {
  title: string;
  /** One for each time; null where there is no value. */
  values: readonly (number | null)[];
  /** A token, for what has a colour everywhere. */
  color?: string;
}

/** The token of the colour of a series: its own, or the one of its place. */
export const colorOf = ({ color }: Series, index: number, mirrored: boolean): string => color ?? (mirrored && index ? "--data-pair" : `--series-${index + 1}`);

/** Something that happened at a time, in Unix seconds. */
export interface Mark {
  at: number;
  icon: IconName;
  title: string;
  /** Where there is more about it. */
  href: string | null;
}

/** Marks that are so near to each other, in pixels, that there is one for them. */
const NEAR = 26;

/** Where marks stand in a chart of this width that shows this span: those near to each other are one, with the latest first. `now`: what came later than the last value is at the end. */
export function placesOf(marks: readonly Mark[], [from, to]: readonly [number, number], width: number, now: boolean): { x: number; marks: Mark[] }[] {
  const places: { x: number; marks: Mark[] }[] = [];
  for (const mark of marks.filter(({ at }) => at >= from && (now || at <= to)).sort((one, other) => one.at - other.at)) {
    const x = Math.min(1, (mark.at - from) / (to - from || 1)) * width;
    const last = places.at(-1);
    if (last && x - last.x < NEAR) last.marks.unshift(mark);
    else places.push({ x, marks: [mark] });
  }
  return places;
}

interface Drawn {
  width: number;
  height: number;
  series: readonly Series[];
  format: (value: number) => string;
  sync: string | undefined;
  zoomed: (from: number, to: number) => void;
  moved: (index: number | null) => void;
  /** The second line goes down from zero. */
  mirrored: boolean;
  /** Called with the place of the lines in the chart, in pixels. */
  placed: (left: number, width: number) => void;
}

/** The options of uPlot. */
export function drawn({ width, height, series, format, sync, zoomed, moved, mirrored, placed }: Drawn): uPlot.Options {
  const text = color("--muted");
  const grid = { stroke: color("--border"), width: 1 };
  const font = `${token("--size-s")} ${token("--font")}`;
  const glow = color("--data-glow");
  const base = { stroke: text, font, grid, ticks: { show: false } };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 26, 0, 0],
    cursor: {
      y: false,
      points: { size: 7 },
      drag: { x: true, y: false, setScale: false },
      ...(sync ? { sync: { key: sync } } : {}),
    },
    select: { show: true, left: 0, top: 0, width: 0, height: 0 },
    scales: { x: { time: true, auto: false }, y: { range: (_plot, least, most) => [mirrored && least < 0 ? least * 1.12 : 0, most > 0 ? most * 1.12 : NOTHING] } },
    axes: [
      { ...base, grid: { show: false }, space: 84, size: 24, gap: 8, values: (_plot, splits) => labels(splits) },
      { ...base, size: (_plot, texts) => axisWidth(texts, font), gap: 8, space: 36, incrs: STEPS, values: (plot, splits) => amounts(splits.map(Math.abs), format, plot.scales.y?.max ?? 1) },
    ],
    series: [
      {},
      ...series.map((each, index) => {
        const stroke = color(colorOf(each, index, mirrored));
        return { stroke, width: 1.8, dash: DASHES[index] ?? [], fill: series.length === 1 || mirrored ? (plot: uPlot) => faded(plot, each.color ? stroke : glow, index > 0) : undefined, spanGaps: false, points: { show: false } };
      }),
    ],
    hooks: {
      draw: [({ bbox }) => placed(bbox.left / uPlot.pxRatio, bbox.width / uPlot.pxRatio)],
      setCursor: [(plot) => moved(plot.cursor.idx ?? null)],
      setSelect: [
        (plot) => {
          const { left, width: chosen } = plot.select;
          if (chosen > 4) zoomed(plot.posToVal(left, "x"), plot.posToVal(left + chosen, "x"));
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** Of the lines of one chart, which colour alone does not tell apart. */
export const DASHES = [[], [7, 4], [2, 3]];

/** The end of the axis of amounts where there are none. */
export const NOTHING = 1e-9;
/** Of the axis of amounts: a quarter of one would have more decimals than its label. */
export const STEPS = Array.from({ length: 24 }, (_, power) => [1, 2, 5].map((each) => Number(`${each}e${power - 10}`))).flat();

/** Labels of the axis of amounts; 0 alone where there is nothing. */
export function amounts(splits: number[], format: (value: number) => string, end: number): string[] {
  return splits.map((value) => (value > 0 && end <= NOTHING ? "" : brief(format(value))));
}

/** Times of the axis: days where they are days apart, seconds where they are less than a minute apart. */
function labels(splits: number[]): string[] {
  const apart = (splits[1] ?? 0) - (splits[0] ?? 0);
  const options: Intl.DateTimeFormatOptions =
    apart >= 86_400 ? { day: "numeric", month: "short" } : apart > 0 && apart < 60 ? { timeStyle: "medium" } : { timeStyle: "short" };
  const format = new Intl.DateTimeFormat(locale(), options);
  return splits.map((time) => format.format(time * 1000));
}

/** Pixels for the labels of the axis at the left. */
function axisWidth(texts: string[] | null, font: string): number {
  const canvas = document.createElement("canvas").getContext("2d");
  if (!canvas || !texts) return 60;
  canvas.font = font;
  return Math.ceil(Math.max(...texts.map((each) => canvas.measureText(each).width))) + 12;
}

const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name);

/** A colour of the theme as the canvas takes it. */
function color(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** Between a line and zero: it fades towards zero. */
function faded({ ctx, bbox: { top, height }, valToPos }: uPlot, rgb: string, below: boolean): CanvasGradient {
  const gradient = ctx.createLinearGradient(0, below ? top + height : top, 0, valToPos(0, "y", true) || top + height);
  for (const [place, alpha] of [[0, 0.36], [1, 0.05]] as const) gradient.addColorStop(place, rgb.replace(")", `, ${alpha})`));
  return gradient;
}
