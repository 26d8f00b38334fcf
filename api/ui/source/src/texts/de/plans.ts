import type { Texts } from "../index";

export const plans: Texts["plans"] = {
  "create": "Tarif anlegen",
  "policy.hint": "Gilt auf allen Proxys, vor der Richtlinie des Proxys",
  "disclose": "Regel in Ablehnungen nennen",
  "disclose.hint": "Sonst erfahren Clients nur den Grund, nicht Richtlinie, Regel oder Liste",
  "self.password": "Kontoinhaber dürfen ihr Passwort ändern",
  "self.hint": "Unter /ui/me, wenn die Selbstbedienung eingeschaltet ist",
  "self.credentials": "Kontoinhaber dürfen Zugangsschlüssel anlegen",
  "empty.title": "Noch kein Tarif",
  "empty.text": "Ein Tarif ist, was viele Konten gemeinsam haben: Limits, Kontingent, Ziele, Zeitplan. Eine Änderung gilt sofort für alle.",
  "delete": "Tarif löschen",
  "delete.text": "Ein Tarif, den Konten benutzen, kann nicht gelöscht werden.",
  "gone": "Diesen Tarif gibt es nicht",
};
