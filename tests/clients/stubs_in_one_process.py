"""Import a client's stubs and the service into one process, in the given order. Usage: FOLDER MODULE..."""

import importlib
import sys

folder, *modules = sys.argv[1:]
# behind our own packages, so that only what we do not have comes from there
sys.path.append(folder)
for module in modules:
    importlib.import_module(module)
