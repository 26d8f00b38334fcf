"""The dashboard: the page that a browser gets at `/ui/`.

`source` has what it is written in, `static` what `scripts/build-ui` makes of it, and these modules serve the latter:
`files` knows the files with their headers and compressed forms, `page` is the Falcon sink.
"""
