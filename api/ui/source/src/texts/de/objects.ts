import type { Texts } from "../index";

export const objects: Texts["objects"] = {
  "name": "Name",
  "description": "Beschreibung",
  "general": "Allgemein",
  "search": "Name oder Beschreibung",
  "none": "Nichts mit „{q}“ im Namen oder in der Beschreibung",
  "saved": "{name} ist gespeichert",
  "deleted": "{name} ist gelöscht",
  "failed": "{name} konnte nicht gespeichert werden",
  "warnings": "Warnungen",
  "used": "Benutzt von",
  "used.none": "Nichts benutzt es.",
  "used.proxy": "Proxy {name}",
  "used.plan": "Tarif {name}",
  "used.account": "Konto {name}",
  "used.credential": "Zugangsschlüssel {name}",
  "used.policy": "Richtlinie {name}",
  "used.pool": "Pool {name}",
  "used.list": "Liste {name}",
  "used.setting": "alle Proxys ({name})",
};
