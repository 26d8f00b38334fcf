/** The upstreams of a proxy as its screen shows them: what is configured beside what is measured, and how many are usable. */
import type { Schemas } from "../../api/client";
import { t } from "../../texts";
import { address, type Detailed } from "./columns";

type Configured = Pick<Schemas["UpstreamView"], "name" | "protocol" | "host" | "port" | "weight">;

export interface Upstream {
  name: string;
  /** `socks5://proxy.example:1080` */
  url: string;
  weight: number;
  /** null while no process runs that could know. */
  live: Schemas["UpstreamStateView"] | null;
}

const ORDER = ["down", "up", "unknown"];

/** Those that are down first, else in the order of the configuration. */
export function upstreamsOf({ upstreams, runtime }: { upstreams: Configured[]; runtime: Detailed["runtime"] }): Upstream[] {
  const states = new Map((runtime?.upstreams ?? []).map((each) => [each.name, each]));
  const found = upstreams.map((each) => ({ name: each.name, url: `${each.protocol}://${address(each)}`, weight: each.weight, live: states.get(each.name) ?? null }));
  const place = ({ live }: Upstream) => ORDER.indexOf(live?.state ?? "unknown");
  return found.sort((one, other) => place(one) - place(other));
}

/** `, 3 of 4 usable, 1 unknown`; nothing where that is not known. */
export function usableText({ usable, unknown, total }: Schemas["ExitView"]): string {
  if (usable === null || total === null) return "";
  return `, ${t("proxies.exit.usable", { n: usable, total })}${unknown ? `, ${t("pools.unknown", { n: unknown })}` : ""}`;
}
