import type { Texts } from "../index";

export const proxyaccounts: Texts["proxyaccounts"] = {
  "create": "Konto dieses Proxys",
  "fleet": "Konto mehrerer Proxys",
  "back": "Alle Konten dieses Proxys",
  "explain": "Eine Anfrage davon erklären",
  "limits": "0 ist keine Grenze. Das Kontingent zählt beide Richtungen zusammen.",
  "open": "Hier braucht kein Client eine Anmeldung, also auch kein Konto. Die Anmeldung wird in der Konfiguration eingeschaltet, und durch das erste Konto dieses Proxys.",
  "own": "Daneben darf der Benutzer {name} des Proxys selbst ihn benutzen, ohne Grenzen.",
  "backend": "Über Benutzer, die keine Konten sind, entscheidet Ihr eigener Dienst.",
  "empty.title": "Kein Konto darf diesen Proxy benutzen",
  "empty.text": "Ein Konto ist eine Person oder ein Programm mit Passwort, Grenzen und Kontingent: nur dieses Proxys oder mehrerer.",
  "delete.text": "Clients mit diesem Namen werden ab dann abgelehnt, und offene Verbindungen enden.",
};
