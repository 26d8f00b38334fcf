/** The words for which a proxy refuses or fails, as people say them; one row for each reason of a record. */
import { REASONS } from "../../api/reasons";

export const reason = {
  ...REASONS.listener,
  ...REASONS.sign_in,
  ...REASONS.limits,
  ...REASONS.policy,
  ...REASONS.exit,
  ...REASONS.target,
  ...REASONS.ended,
  "reported": "report only: {reason}",
};
