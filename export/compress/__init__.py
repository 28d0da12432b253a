"""Makes networks smaller by their gates: removes the units whose gates hardly ever change anything.

`removable_layers.py` finds the layers whose units can go, `importance.py` measures what each unit changes on
rows of data, `selection.py` chooses, and `cut_graph.py` cuts the graph. `carried_reference.py` is the graph
that the cut one must equal: the whole one, in which the removed units carry their input.
"""
