/** The ways to sign in. */
import { ApiError } from "../../api/errors";
import { router } from "../../lib/router.svelte";

export interface Methods {
  /** Whether account holders may sign in at `/me`. */
  self_service: boolean;
  identity_provider: "google" | "github" | "microsoft" | "custom" | null;
  /** The file in the data directory with the first password of `admin`, until that is changed. */
  initial_password_file: string | null;
  /** Where it is, for a browser on the machine of the service. */
  initial_password_path: string | null;
}

/** What is assumed where the service can't be asked. */
export const NOTHING: Methods = { self_service: true, identity_provider: null, initial_password_file: null, initial_password_path: null };
const NAMES = { google: "Google", github: "GitHub", microsoft: "Microsoft", custom: "SSO" };

/** What this service offers; where that can't be asked, a password alone. */
export async function methods(): Promise<Methods> {
  const response = await fetch("/api/v1/auth/methods", { credentials: "omit", cache: "no-store" }).catch(() => null);
  const body: { data?: Methods } | null = response?.ok ? await response.json().catch(() => null) : null;
  return body?.data ?? NOTHING;
}

export const providerName = (provider: NonNullable<Methods["identity_provider"]>): string => NAMES[provider];

/** What the service accepts as a way back: no escapes in the path, and no empty or dotted parts. */
const WAY_BACK = /^\/ui(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*\/?(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]*)?$/;

/** The address to which a sign-in at a provider returns: that of the page, or the first one. */
export function wayBack(here: string): string {
  const path = `/ui${here}`;
  return !here.startsWith("/sign-in") && path.length <= 2000 && WAY_BACK.test(path) ? path : "/ui/";
}

/** Leave for the provider; it comes back to this address with the cookie of a session. */
export function signInAt(provider: string): void {
  const back = new URLSearchParams({ provider, session: "cookie", return_to: wayBack(router.here) });
  location.assign(`/api/v1/auth/oauth2/authorize?${back}`);
}

/** An error of the sign-in; one that is none is a bug and thrown on. */
export function failed(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof TypeError) return new ApiError({ status: 0, code: "UNREACHABLE", message: "", requestId: null, details: null });
  throw error;
}
