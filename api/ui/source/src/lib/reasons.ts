/**
 * Why a request was refused, failed or ended early: its reason in words, and the step of its way that it came to. The table is the
 * service's own (`config/text/reasons.py`); the page is built with it.
 */
import { REASONS } from "../api/reasons";
import { t, tMaybe } from "../texts";

export type Step = Exclude<keyof typeof REASONS, "ended">;
/** In the order in which a request comes to them. */
export const STEPS = Object.keys(REASONS).filter((step) => step !== "ended") as Step[];
const STEP_OF = new Map<string, Step>(STEPS.flatMap((step) => Object.keys(REASONS[step]).map((reason) => [reason, step] as const)));

interface Reasoned {
  reason: string;
  status_code?: number;
  user?: string;
}

const REPORTED = "reported:";
/** Whether it was allowed only since rules are reported and not enforced. */
export const isReported = (reason: string): boolean => reason.startsWith(REPORTED);
/** The reason for which it was refused, or would have been. */
export const bare = (reason: string): string => (isReported(reason) ? reason.slice(REPORTED.length) : reason);

/** Which row of the table: one reason has three. */
function rowOf({ reason, status_code, user }: Reasoned): string {
  if (reason !== "http_request_denied") return reason;
  return status_code === 403 ? `${reason}.upstream` : user ? `${reason}.user` : reason;
}

/** `denied by a policy`; the word itself where there is no text for it, empty without a reason. */
export function reasonText(of: Reasoned): string {
  if (isReported(of.reason)) return t("reason.reported", { reason: reasonText({ reason: bare(of.reason) }) });
  return tMaybe(`reason.${rowOf(of)}`, of.reason);
}

/** The step that stops a request for it, undefined for what stops none. `upstream`: it goes through one, which is what can't be reached then. */
export function stepOf(of: Reasoned, upstream = false): Step | undefined {
  return of.reason === "destination_unavailable" && (upstream || of.status_code === 503) ? "exit" : STEP_OF.get(rowOf(of));
}
