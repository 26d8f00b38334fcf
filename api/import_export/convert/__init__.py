"""Conversion of the configuration of other proxies to a document that an import takes.

The access lists of squid and 3proxy are decision lists: the first line that matches decides. So are policies, but their
rules have no negation. `decisions.py` walks through the lines with the region
of requests (`regions.py`) that is still to be decided, and emits rules in order:

- A negated condition on ports, on tunnels and on plain HTTP, is a condition on the others. Any other one is a
  hole in the line's region: what lies in it is decided by the lines behind, in rules of its own before the line's.
- Whatever of a line can't be expressed makes it wider if it denies and narrower if it allows. So a converted rule
  never allows what the line denied, and the report (`report.py`) names the line.

`squid.py` and `threeproxy.py` have a table each with a row for a directive: what carries it over to the `Draft`
(`draft.py`), which is the document in the making, or why it isn't. `decisions.py` also writes the regions as rules, and
`comparison.py` replays a log of squid against them.
"""
