"""`scripts/soak --cluster`: three nodes of a fleet, one of them an edge, while their database, their network and they
themselves fail.

`fleet` is the nodes with their database and the relays between them, and `drills` harms it. `faults` knows what each
drill may cause, `changes` is what is asked of the nodes, and `verdict` compares what they have at the end.
"""
