import type { Texts } from "../index";

export const accountimport: Texts["accountimport"] = {
  "title": "Konten importieren",
  "open": "CSV importieren",
  "text": "Die erste Zeile nennt die Spalten: Felder der API, verschachtelte mit Punkten. Eine Zeile mit einer id ändert dieses Konto. Alle Zeilen werden gespeichert oder keine.",
  "file": "CSV-Datei",
  "hint": "Die Datei wird zuerst geprüft; gespeichert wird erst danach.",
  "encoding": "Die Datei ist nicht in UTF-8.",
  "empty": "Die Datei enthält kein Konto.",
  "passwords": "Hier können höchstens {n} Passwörter auf einmal gesetzt werden. Nehmen Sie password_hash oder proxyfleet accounts import FILE.",
  "checking": "{n} Zeile wird geprüft|{n} Zeilen werden geprüft",
  "would": "Die Datei ist richtig: {created} kämen hinzu, {updated} würden geändert.",
  "apply": "Konten speichern",
  "done": "{created} Konten sind angelegt, {updated} geändert",
  "wrong": "{n} Zeile ist falsch|{n} Zeilen sind falsch",
  "line": "Zeile",
  "field": "Spalte",
  "error": "Was falsch ist",
};
