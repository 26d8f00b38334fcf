import type { Texts } from "../index";

export const plans: Texts["plans"] = {
  "title": "Tarife",
  "create": "Tarif anlegen",
  "name": "Name",
  "description": "Beschreibung",
  "accounts": "{n} Konto|{n} Konten",
  "policy": "Richtlinie",
  "policy.hint": "Vor der des Proxys, auf allen Proxys",
  "disclose": "Ablehnungen nennen die Regel",
  "disclose.hint": "Sonst erfahren Clients ihrer Konten nur den Grund: keine Richtlinie, keine Regel, keinen Namen einer Liste",
  "self.password": "Inhaber dürfen ihr Passwort ändern",
  "self.hint": "Unter /ui/me, wenn Selbstbedienung eingeschaltet ist",
  "self.credentials": "Inhaber dürfen Zugangsschlüssel ausstellen",
  "empty.title": "Noch kein Tarif",
  "empty.text": "Ein Tarif ist, was viele Konten gemeinsam haben: Grenzen, Kontingent, Ziele, Zeitplan. Eine Änderung gilt für alle sofort.",
  "failed": "{name} konnte nicht gespeichert werden",
  "saved": "{name} ist gespeichert",
  "deleted": "{name} ist gelöscht",
  "delete": "Tarif löschen",
  "delete.text": "Ein Tarif, den Konten benutzen, kann nicht gelöscht werden.",
  "gone": "Diesen Tarif gibt es nicht",
};
