"""Lists as others publish them, read as a stream: `reading.read_list` adds what is understood to a compiler.

Nothing is guessed. A line that is no entry of the format is skipped and counted, and the first few are kept as
examples. Memory depends on the longest line, which is bounded, not on the size of the list.
"""
