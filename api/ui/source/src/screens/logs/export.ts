/** The export of records as a file. */
import { api, data } from "../../api/client";
import { saved } from "../../lib/save";
import type { TimeSpan } from "../../lib/range";
import { times, type which } from "./query";

/** Ask for the records of the search and save them. Throws `ApiError`. */
export async function exported(query: ReturnType<typeof which>, span: TimeSpan): Promise<void> {
  const file = await data(api.GET("/api/v1/logs/export", { params: { query: { ...query, ...times(span) } }, parseAs: "blob" }));
  saved(file as unknown as Blob, "access.ndjson");
}
