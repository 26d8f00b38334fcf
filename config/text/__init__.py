"""Texts: numbers and times for people, untrusted text made safe for a terminal and a log, formats of access logs."""
