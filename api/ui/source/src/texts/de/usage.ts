import type { Texts } from "../index";

export const usage: Texts["usage"] = {
  "title": "Verbrauch",
  "none": "In dieser Zeit wurde nichts verbraucht",
  "none.text": "Der Verbrauch der Konten erscheint hier, sobald ihre Clients Anfragen senden.",
  "failed": "Der Bericht konnte nicht geladen werden",
  "interval": "Intervall",
  "interval.hour": "Stunden",
  "interval.day": "Tage",
  "interval.month": "Monate",
  "by": "Gruppiert nach",
  "by.account": "Konto",
  "by.proxy": "Proxy",
  "by.plan": "Tarif",
  "by.tag": "Tag",
  "from": "Von (UTC)",
  "requests": "Anfragen",
  "refusals": "Abgelehnt",
  "time": "Verbunden",
};
