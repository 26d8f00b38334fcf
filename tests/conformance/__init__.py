"""Against independent readings: parsers, a corpus, a fuzzer, and the API against its own description."""
