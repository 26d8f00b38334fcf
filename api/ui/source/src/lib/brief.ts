/** Labels of an axis. */
import { locale } from "../texts";

/** Without zeros at the end of decimals: `512 kB/s`, `1.5 %`. */
export function brief(text: string): string {
  const point = new Intl.NumberFormat(locale()).formatToParts(1.5).find((part) => part.type === "decimal")?.value ?? ".";
  const at = text.indexOf(point);
  return at < 0 ? text : text.slice(0, at) + text.slice(at).replace(/^(.\d*?)0+(?=\D|$)/, "$1").replace(/^.(?=\D|$)/, "");
}
