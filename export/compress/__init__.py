"""Makes networks smaller by their gates: removes the units that change their input least.

`compress.py` has all steps in order. `removable_layers.py` finds the layers whose units can go,
`unit_changes.py` measures what each unit changes on rows of data, `layer_weights.py` makes this comparable
between layers, and `selection.py` chooses the units to keep. `finetuning.py` trains these units of a
checkpoint. `cut_graph.py` cuts the graph, `trials.py` tries cuts, and `measured_cut.py` proves and measures
the one that is written. `carried_reference.py` is the graph that the cut one must equal: the whole one, in
which the removed units carry their input. `verify_cut.py` proves a file again.
"""
