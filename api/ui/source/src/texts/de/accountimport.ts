import type { Texts } from "../index";

export const accountimport: Texts["accountimport"] = {
  "title": "Konten importieren",
  "open": "CSV importieren",
  "text": "Die erste Zeile nennt die Spalten: Felder der API, verschachtelte mit Punkten. Eine Zeile mit id ändert dieses Konto. Gespeichert werden alle Zeilen oder keine.",
  "file": "CSV-Datei",
  "hint": "Die Datei wird zuerst geprüft. Gespeichert wird erst, wenn Sie bestätigen.",
  "encoding": "Die Datei ist nicht in UTF-8. Speichern Sie sie in UTF-8 und wählen Sie sie erneut.",
  "empty": "Die Datei enthält keine Konten.",
  "passwords": "Hier können höchstens {n} Passwörter auf einmal gesetzt werden. Nehmen Sie password_hash oder proxyfleet accounts import FILE.",
  "checking": "{n} Zeile wird geprüft|{n} Zeilen werden geprüft",
  "would": "Die Datei ist gültig: {created} neu, {updated} geändert.",
  "done": "Konten importiert: {created} neu, {updated} geändert",
  "wrong": "{n} Zeile ist fehlerhaft|{n} Zeilen sind fehlerhaft",
  "line": "Zeile",
  "field": "Spalte",
};
