/** The names of all objects of a kind, for choices. */
import { api, data } from "../../api/client";

/** Objects of a kind are at most so many, and a page too. */
const ALL = 1000;

export async function namesOf(area: "lists" | "policies" | "pools", signal: AbortSignal): Promise<string[]> {
  const params = { query: { limit: ALL } };
  if (area === "lists") return (await data(api.GET("/api/v1/lists", { params, signal }))).lists.map((each) => each.name);
  if (area === "pools") return (await data(api.GET("/api/v1/pools", { params, signal }))).pools.map((each) => each.name);
  return (await data(api.GET("/api/v1/policies", { params, signal }))).policies.map((each) => each.name);
}
