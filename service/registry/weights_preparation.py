"""Prepares the weights of one model, in a process of its own, and compares them with the model.

`shared_weights` starts the process, with a JSON object as standard input. onnxruntime writes its optimized
graph and packed weights, and opens them: both forms must have the same tensors and give the same bits. The
last line of the output is a JSON string that says why the files may not be used, or null if they may.

Memory may be limited, and onnxruntime crashes if it has too little while it writes these files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from turnpike.service.artifact.runtime import PreparedFiles, Runtime, open_runtime
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.errors import ModelFileError, RunError
from turnpike.service.memory.free_memory import trim_memory, use_one_heap
from turnpike.service.memory.process_limit import limit_memory, offer_to_oom_killer
from turnpike.service.registry.checked_file import batch_dimension
from turnpike.service.registry.probe import Rows, find_rows
from turnpike.service.weights.entry import WEIGHTS, Entry

# requests have priority over a preparation
NICENESS = 10
# rows of the runs in which both forms must give the same bits: kernels change at small sizes
COMPARED_ROWS = (1, 2, 7)


class UnfitError(Exception):
    """The prepared form of a model cannot be made, or is not what the model is."""


def main() -> None:
    """Answer the request of standard input."""
    request = json.load(sys.stdin)
    os.nice(NICENESS)
    # A worker does this once. Twice makes the kernel kill this process before a worker.
    offer_to_oom_killer()
    offer_to_oom_killer()
    use_one_heap()
    limit_memory(request["memory"])
    reason = None
    try:
        draft = Entry(Path(request["folder"]))
        prepare(Path(request["model"]), draft, request["threads"], request["disabled_optimizers"])
    except (UnfitError, ModelFileError, RunError) as error:
        reason = str(error)
    except MemoryError:
        reason = "there is not enough memory"
    sys.stdout.write(f"\n{json.dumps(reason)}\n")
    sys.stdout.flush()
    # leaves out what libraries do at the end
    os._exit(0)


def prepare(model: Path, draft: Entry, threads: int, disabled_optimizers: Sequence[str] = ()) -> None:
    """Write the files of a draft, without the optimizers that would make another function of the graph.

    Raises:
        UnfitError: They are not the same model.
        ModelFileError: onnxruntime cannot write them, or open one of the forms.
        RunError: One of the forms cannot be run.
    """
    files = PreparedFiles(draft.graph, WEIGHTS)
    original = open_runtime(
        model, None, threads=threads, prepare=files, disabled_optimizers=disabled_optimizers
    )
    if not (draft.folder / WEIGHTS).exists():
        raise UnfitError("the model has no large weights")
    tensors, runs = _tensors(original), _compared_runs(original)
    # memory has room for one form
    del original
    trim_memory()
    mapped = open_runtime(draft.graph, None, threads=threads, prepared=True)
    if _tensors(mapped) != tensors:
        raise UnfitError("the prepared graph has other inputs, outputs or levers")
    if any(_output_bytes(mapped, feeds) != expected for feeds, expected in runs):
        raise UnfitError("the prepared graph gives other bits")


def _tensors(runtime: Runtime) -> tuple[tuple[Tensor, ...], ...]:
    return (runtime.inputs, runtime.outputs, runtime.levers)


def _compared_runs(runtime: Runtime) -> list[tuple[Rows, list[bytes]]]:
    """Feeds of a few sizes, also with all levers moved, and what every output is for them."""
    batch = batch_dimension(runtime.inputs)
    moved = {
        tensor.name: np.ones([dim for dim in tensor.dims if isinstance(dim, int)], tensor.dtype)
        for tensor in runtime.levers
    }
    runs = []
    for rows in find_rows(runtime, batch, max(COMPARED_ROWS)):
        for count in COMPARED_ROWS if batch is not None else (None,):
            feeds = {name: array[:count] for name, array in rows.items()}
            runs += [(part, _output_bytes(runtime, part)) for part in (feeds, feeds | moved)]
    if not runs:
        raise UnfitError("the model accepts none of the random rows on which its forms are compared")
    return runs


def _output_bytes(runtime: Runtime, feeds: Rows) -> list[bytes]:
    return [array.tobytes() for array in runtime.run(feeds)]
