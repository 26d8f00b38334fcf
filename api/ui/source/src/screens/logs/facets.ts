/** The values of records that are offered as filters, each with its number. */
import type { Schemas } from "../../api/client";
import { reasonText } from "../../lib/reasons";
import { t } from "../../texts";
import { CLASSES, type Values } from "./query";
import { OUTCOMES, type Outcome } from "./outcome";

/** By the name of the filter. */
export const FACETS = ["outcome", "class", "reason", "proxy", "user", "target"] as const;
export type FacetKey = (typeof FACETS)[number];
export interface Row {
  /** As the filter has it. */
  value: string;
  name: string;
  n: number;
}

/** The field of the API behind each; a class of statuses is the sum of its codes. */
const FIELDS: Record<FacetKey, string> = { outcome: "outcome", class: "status_code", reason: "reason", proxy: "proxy_id", user: "user", target: "target_host" };
/** Rows of each. */
const SHOWN = 6;

/** One for each field that was counted. What is chosen stays among its rows. */
export function facetsOf(counted: readonly Schemas["LogFacet"][], values: Pick<Values, FacetKey>): { key: FacetKey; rows: Row[] }[] {
  return FACETS.map((key) => {
    const found = counted.find(({ field }) => field === FIELDS[key])?.values ?? [];
    const rows = rowsOf(key, found);
    return { key, rows: rows.filter(({ value }, index) => index < SHOWN || value === values[key]) };
  });
}

function rowsOf(key: FacetKey, found: Schemas["LogFacet"]["values"]): Row[] {
  if (key === "class") {
    const rows = CLASSES.map((value): Row => ({ value, name: t(`logs.class.${value}`), n: found.filter((each) => each.value[0] === value[0]).reduce((sum, { records }) => sum + records, 0) }));
    return rows.filter(({ n }) => n > 0);
  }
  const rows = found.map(({ value, name, records }): Row => ({ value, name: nameOf(key, value, name), n: records }));
  return key === "outcome" ? OUTCOMES.flatMap((outcome) => rows.filter(({ value }) => value === outcome)) : rows;
}

function nameOf(key: FacetKey, value: string, name: string): string {
  if (key === "outcome") return t(`logs.outcome.${value as Outcome}`);
  return key === "reason" ? reasonText({ reason: value }) : name;
}
