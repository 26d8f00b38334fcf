/** How many upstreams of a proxy's exit can be used, in words. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";

/** `, 3 of 4 usable, 1 unknown`; nothing where that is not known. */
export function usableText({ usable, unknown, total }: Schemas["ExitView"]): string {
  if (usable === null || total === null) return "";
  return `, ${t("proxies.exit.usable", { n: usable, total })}${unknown ? `, ${t("pools.unknown", { n: unknown })}` : ""}`;
}
