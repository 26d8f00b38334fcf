/** The fields of a form that are wrong, as the page shows them. */
export interface WrongField {
  input: HTMLElement;
  label: string;
  error: string;
}

/** Those within `place`, in the order of the page. */
export function wrongFields(place: ParentNode): WrongField[] {
  return [...place.querySelectorAll<HTMLElement>('[aria-invalid="true"]')].map((input) => ({ input, label: labelOf(input), error: errorOf(input) }));
}

/** Show a field, and put the focus into it. */
export function leadTo(field: WrongField): void {
  for (let outside = field.input.closest("details"); outside; outside = outside.parentElement?.closest("details") ?? null) outside.open = true;
  field.input.scrollIntoView({ block: "center" });
  field.input.focus({ preventScroll: true });
}

function labelOf(input: HTMLElement): string {
  const label = "labels" in input ? (input.labels as NodeListOf<HTMLLabelElement> | null)?.[0] : undefined;
  const own = label?.firstChild?.textContent ?? input.getAttribute("aria-label") ?? "";
  const group = input.closest("fieldset")?.querySelector("legend")?.textContent;
  return [group, own].filter(Boolean).join(" · ").trim();
}

function errorOf(input: HTMLElement): string {
  const ids = (input.getAttribute("aria-describedby") ?? "").split(" ");
  const id = ids.find((each) => each.endsWith("-error"));
  return (id && document.getElementById(id)?.textContent) || (input.nextElementSibling?.matches("[role=status]") ? (input.nextElementSibling.textContent ?? "") : "");
}
