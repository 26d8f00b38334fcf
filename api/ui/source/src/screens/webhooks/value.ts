/** A webhook as its form has it, and the body of the API. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

export type Webhook = Schemas["WebhookView"];
export type WebhookEvent = Schemas["WebhookCreate"]["events"][number];

/** Categories; `*` of each has all of its events, also those of later releases. */
export const EVENTS = {
  proxy: ["created", "updated", "deleted", "started", "stopped", "restarted", "down", "up", "error", "recovered"],
  error_rate: ["recovered"],
  account: ["created", "updated", "deleted", "imported", "expired", "quota_warning", "quota_reached", "tls_name_denied"],
  credential: ["created", "revoked"],
  pool: ["created", "updated", "deleted", "error", "down", "up"],
  upstream: ["down", "up", "banned", "unbanned"],
  list: ["created", "updated", "deleted", "error"],
  policy: ["created", "updated", "deleted"],
  user: ["created", "updated", "deleted"],
  api_key: ["created", "revoked"],
  auth: ["login_failed", "locked"],
  settings: ["updated", "reloaded"],
  config: ["restored", "undone"],
  node: ["joined", "removed", "down", "up", "cut_off", "failed"],
  fleet: ["rewound"],
  webhook: ["disabled", "test"],
} as const;
export type Category = keyof typeof EVENTS;

type Listed = { [C in Category]: `${C}.${(typeof EVENTS)[C][number] | "*"}` }[Category] | "high_error_rate" | "*";
type None<T extends never> = T;
/** An event that only the API knows, or only this page, fails to compile. */
export type Unlisted = None<Exclude<WebhookEvent, Listed> | Exclude<Listed, WebhookEvent>>;

/** Whether the star of a category has this event; `error_rate.*` has no `high_error_rate`. */
export const inStar = (category: Category, name: string): boolean => name.startsWith(`${category}.`);

/** The events of a category by their whole names. */
export function named(category: Category): string[] {
  const names = EVENTS[category].map((each) => `${category}.${each}`);
  return category === "error_rate" ? ["high_error_rate", ...names] : names;
}

/** In words, with one for all of them. */
export const eventsOf = (events: readonly string[]): string => (events.includes("*") ? t("webhooks.events.every") : events.join(", "));

export interface WebhookValue {
  name: string;
  url: string;
  enabled: boolean;
  events: string[];
  headers: { name: string; value: string }[];
}

export const blank = (): WebhookValue => ({ name: "", url: "", enabled: true, events: ["proxy.*"], headers: [] });

export function valueOf({ name, url, enabled, events, headers }: Webhook): WebhookValue {
  return { name, url, enabled, events: [...events], headers: Object.entries(headers).map(([key, value]) => ({ name: key, value })) };
}

export function bodyOf(value: WebhookValue) {
  const headers = Object.fromEntries(value.headers.filter((each) => each.name.trim()).map((each) => [each.name.trim(), each.value]));
  return { name: value.name, url: value.url, enabled: value.enabled, events: value.events as WebhookEvent[], headers };
}

/** The events after one was ticked or not; the star of a category stands for all of it. */
export function toggled(events: readonly string[], name: string, on: boolean, category?: Category): string[] {
  const left = events.filter((each) => each !== name && !(name === "*" && on) && !(category && name === `${category}.*` && inStar(category, each)));
  return on ? [...left, name] : left;
}

/** The word of a webhook's state and whether deliveries fail. */
export function stateOf(webhook: Webhook): "failed" | "disabled" | "degraded" | "active" {
  if (!webhook.enabled) return webhook.disabled_reason ? "failed" : "disabled";
  const status = webhook.delivery_status;
  const failing = status?.last_failure_at && (!status.last_success_at || Date.parse(status.last_failure_at) > Date.parse(status.last_success_at));
  return failing ? "degraded" : "active";
}
