/** What the API says when it refuses: one class for all of it. */
import { cited } from "../lib/cited";

interface Parts {
  /** 0: there was no response. */
  status: number;
  code: string;
  message: string;
  requestId: string | null;
  details: unknown;
}

export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  readonly details: unknown;

  constructor(parts: Parts) {
    super(parts.message);
    this.name = "ApiError";
    this.status = parts.status;
    this.code = parts.code;
    this.requestId = parts.requestId;
    this.details = parts.details;
  }

  /** The errors of fields of a 400, by the field's path such as `settings.timeout`. */
  get fields(): Record<string, string> {
    const details = record(this.details);
    const all = Array.isArray(details.errors) ? details.errors.map(record) : [details];
    const found = all.filter((each) => typeof each.field === "string" && typeof each.error === "string");
    return Object.fromEntries(found.map((each) => [each.field as string, cited(each.error as string)]));
  }

  /** What is wrong with a request as a whole, of a 400 that names no field, or why a rule forbids it, of a 403. */
  get whole(): string | null {
    const { field, error, reason } = record(this.details);
    if (this.status === 403 && typeof reason === "string") return reason;
    return typeof error === "string" && typeof field !== "string" ? error : null;
  }

  /** The permission that a 403 names. */
  get requiredPermission(): string | null {
    const named = record(this.details).required_permission;
    return typeof named === "string" ? named : null;
  }

  /** Seconds after which a 429 or 503 may be tried again. */
  get retryAfter(): number | null {
    const seconds = record(this.details).retry_after;
    return typeof seconds === "number" ? seconds : null;
  }
}

/** The error in a response that is none of success. */
export function failure(response: Response, body: unknown): ApiError {
  const error = record(record(body).error);
  return new ApiError({
    status: response.status,
    code: typeof error.code === "string" ? error.code : "UNKNOWN",
    message: typeof error.message === "string" ? error.message : response.statusText || `HTTP ${response.status}`,
    requestId: response.headers.get("X-Request-Id"),
    details: error.details ?? null,
  });
}

/** Whether a request was aborted by the page itself; nothing is shown then. */
export function isAbort(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
