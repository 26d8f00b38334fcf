/** Put a text into the clipboard; without TLS the browser has only the old way. Returns whether it worked. */
export async function copied(text: string): Promise<boolean> {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
      return true;
    }
  } catch {
    return selectedCopy(text); // the browser refuses the new way where the page has no focus
  }
  return selectedCopy(text);
}

function selectedCopy(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "reader";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
