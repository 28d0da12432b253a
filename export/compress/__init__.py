"""Makes networks smaller by their gates: removes the units that change their input least.

`remove_units.py` has the steps in order:

1. `whole_network.py` opens the network, and `graph/removable_layers.py` finds the layers whose units can go.
2. `unit_changes.py` measures what each unit changes on rows of data. `layer_weights.py` makes this comparable
   between layers.
3. `selection.py` chooses the units to keep, and `finetuning.py` may train them.
4. `trials.py` tries cuts, which `speed.py` times. `measured_cut.py` proves and measures the one that is
   written.

`verify_cut.py` proves a file again.
"""
