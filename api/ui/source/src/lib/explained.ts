/** An error in one sentence: as the service says it, in another language after what its code says; what never reached the service is said here. */
import type { ApiError } from "../api/errors";
import { t, tMaybe } from "../texts";
import { cited } from "./cited";

export function explained(error: ApiError): string {
  if (error.code === "UNREADABLE") return t("errors.unreadable");
  if (error.status === 0) return t("errors.unreachable");
  if (error.requiredPermission) return t("errors.permission", { permission: error.requiredPermission });
  if (error.status === 429 && error.retryAfter !== null) return t("errors.busy", { seconds: error.retryAfter });
  const fields = Object.entries(error.fields).map(([field, text]) => `${field}: ${text}`);
  const text = error.whole ?? error.message;
  return fields.length ? fields.join("; ") : tMaybe(`errors.code.${error.code}`, cited(text), { text });
}
