/** Programs and systems by what is in a `User-Agent`, the first that fits; Edge and Opera say that they are Chrome, too. */
const PROGRAMS = [["Edg", "Edge"], ["OPR", "Opera"], ["Firefox", "Firefox"], ["HeadlessChrome", "Chrome"], ["Chrome", "Chrome"], ["Version", "Safari"]] as const;
const SYSTEMS = [["Android", "Android"], ["iPhone", "iPhone"], ["iPad", "iPad"], ["Windows", "Windows"], ["Mac OS X", "macOS"], ["CrOS", "ChromeOS"], ["Linux", "Linux"]] as const;

/** `Firefox 140 · Linux` of a browser; what other programs say as it is. */
export function clientOf(agent: string | null): string | null {
  if (!agent?.startsWith("Mozilla/")) return agent;
  const found = PROGRAMS.map(([word, name]) => ({ name, version: agent.split(`${word}/`)[1]?.split(/[.\s]/)[0] })).find((each) => each.version);
  const system = SYSTEMS.find(([word]) => agent.includes(word))?.[1];
  return found ? [`${found.name} ${found.version}`, system].filter(Boolean).join(" · ") : agent;
}
