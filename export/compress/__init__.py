"""Makes networks smaller by their gates: removes the units that change their input least.

`compress.py` has all steps in order. `removable_layers.py` finds the layers whose units can go,
`unit_changes.py` measures what each unit changes on rows of data, `layer_weights.py` makes this comparable
between layers, `selection.py` chooses, `cut_graph.py` cuts the graph, and `trials.py` measures what cuts
give. `carried_reference.py` is the graph that the cut one must equal: the whole one, in which the removed
units carry their input. `finetuning.py` trains what is left of a checkpoint. `verify_cut.py` proves a file
again.
"""
