/** The settings that the API changes, in groups: how each is shown and when it takes effect. */
import type { Schemas } from "../../api/client";

export type Settings = Schemas["SystemSettings"];
export interface SettingField {
  group: keyof Settings;
  key: string;
  kind: "text" | "number" | "choice" | "fixed";
  unit?: string;
  choices?: readonly string[];
  /** The key of the configuration that it shows, where that has another name. */
  configured?: string;
}

const number = (group: keyof Settings, key: string, unit?: string): SettingField => ({ group, key, kind: "number", ...(unit && { unit }) });
const choice = (group: keyof Settings, key: string, choices: readonly string[]): SettingField => ({ group, key, kind: "choice", choices });

export const FIELDS = [
  { group: "server", key: "host", kind: "fixed", configured: "server.host" },
  { group: "server", key: "port", kind: "fixed", configured: "server.port" },
  number("server", "max_connections"),
  { group: "server", key: "ssl_enabled", kind: "fixed", configured: "server.tls.enabled" },
  choice("logging", "level", ["debug", "info", "warning", "error", "critical"]),
  choice("logging", "access", ["all", "errors", "off"]),
  choice("logging", "format", ["text", "json"]),
  { group: "logging", key: "output", kind: "text" },
  number("auth", "session_timeout", "s"),
  number("auth", "max_login_attempts"),
  { group: "auth", key: "enabled", kind: "fixed" },
  number("proxy", "default_timeout", "s"),
  number("proxy", "keep_alive_timeout", "s"),
  number("proxy", "max_idle_connections"),
  number("proxy", "dns_cache_seconds", "s"),
  number("proxy", "sleep_after", "s"),
  { group: "proxy", key: "public_name", kind: "text" },
  number("history", "retention_days"),
  number("history", "max_revisions"),
] as const satisfies readonly SettingField[];

export const GROUPS = ["server", "logging", "auth", "proxy", "history"] as const;
