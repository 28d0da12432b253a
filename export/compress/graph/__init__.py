"""The graph of a compressed network: which units can go, the graph without them, and the graph it must equal.

`cut_graph.py` makes the smaller graph. `carried_reference.py` makes the one that proves it: the whole graph,
in which the removed units carry their input. Neither uses the other's code.
"""
