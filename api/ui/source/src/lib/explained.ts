/** An error in one sentence: by its code where that says all, else as the service says it; what never reached the service is said here. */
import type { ApiError } from "../api/errors";
import { t, tMaybe } from "../texts";
import { cited } from "./cited";

export function explained(error: ApiError): string {
  if (error.code === "UNREADABLE") return t("errors.unreadable");
  if (error.status === 0) return t("errors.unreachable");
  if (error.requiredPermission) return t("errors.permission", { permission: error.requiredPermission });
  if (error.status === 429 && error.retryAfter !== null) return t("errors.busy", { seconds: error.retryAfter });
  const fields = Object.entries(error.fields).map(([field, text]) => `${field}: ${text}`);
  return fields.length ? fields.join("; ") : tMaybe(`errors.code.${error.code}`, cited(error.whole ?? error.message));
}
