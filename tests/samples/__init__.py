"""Data directories as released versions left them, and how one is made (`scripts/make-sample-data`).

Each folder is named after its version: `data` is the data directory, `seen.json` what the API of that version said of
it and the secrets that it knows. They are test values.
"""
