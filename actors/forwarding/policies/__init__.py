"""Policies: ordered rules about requests, of which the first that matches decides. Pure; nothing here does I/O.

`facts` is what a rule may ask about a request and how the path of a URL may be read, `conditions` when one condition of
a rule holds, `compiled` finds the deciding rule of many without asking each, `judge` asks the policies of a request in
their order.

A policy is asked twice at most: by the name of a target, and with each address that it resolved to. A rule that needs
the address is not skipped the first time: the question stays open until the address is known.
"""
