import type { Texts } from "../index";

export const proxyaccounts: Texts["proxyaccounts"] = {
  "create": "Konto für diesen Proxy",
  "fleet": "Konto für mehrere",
  "back": "Alle Konten dieses Proxys",
  "limits": "0 heißt kein Limit. Das Kontingent zählt beide Richtungen zusammen.",
  "open": "Clients brauchen hier keine Zugangsdaten, also wird kein Konto geprüft. Verlangen Sie Zugangsdaten in der Konfiguration, oder legen Sie ein Konto für diesen Proxy an.",
  "own": "Auch der eigene Benutzer {name} des Proxys darf ihn benutzen, ohne Limits.",
  "backend": "Über Benutzer ohne Konto entscheidet Ihr eigener Dienst.",
  "empty.title": "Noch kein Konto darf diesen Proxy benutzen",
  "empty.text": "Ein Konto ist eine Person oder ein Programm mit Passwort, Limits und Kontingent, nur für diesen Proxy oder für mehrere.",
  "delete.text": "Clients mit seinen Zugangsdaten werden ab dann abgelehnt, und offene Verbindungen enden.",
};
