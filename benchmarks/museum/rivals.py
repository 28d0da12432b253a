"""Asks other tools about the files of the museum. Runs in their environment, without turnpike.

    PYTHONPATH=. ENVIRONMENT/bin/python -m benchmarks.museum.rivals FOLDER

FOLDER has the files: `NAME.right.onnx` and `NAME.wrong.onnx`. Prints a line of JSON per tool and file. Each
tool has its own default data and tolerances:

- `torch.onnx.export(verify=True)` compares on the example that the network was traced with, and warns from an
  absolute difference of 5e-3 or a relative one of 0.1 on;
- polygraphy draws one batch from 0 to 1, with 1 for each size that varies; 1e-5 relative and absolute;
- Optimum's `validate_model_outputs` draws one batch of two rows and sequences of 16 steps from 0 to 1; 1e-5;
- downshift-server compares 8 samples that it makes from the example: other numbers of rows, with noise; 1e-4
  absolute, 1e-3 relative.

Three things are not the tools' own. `verify=True` is part of an export, so that its comparison is called
here. Polygraphy's runner of PyTorch needs a GPU, and `TorchRunner` does the same on the CPU. Optimum needs a
configuration per architecture: `MuseumConfig` names the inputs, and Optimum's functions fill them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from downshift.core.verify import verify as downshift_verify
from onnxruntime import InferenceSession
from optimum.exporters.onnx.base import OnnxConfig
from optimum.exporters.onnx.convert import validate_model_outputs
from optimum.utils import DEFAULT_DUMMY_SHAPES, DummyInputGenerator, NormalizedConfig
from polygraphy.backend.base import BaseRunner
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.common import TensorMetadata
from polygraphy.comparator import Comparator
from polygraphy.logger import G_LOGGER
from torch import Tensor, nn
from torch.onnx.verification import VerificationInfo
from transformers import PretrainedConfig

from tests.export.museum.collection import EXHIBITS
from tests.export.museum.exhibit import Exhibit

# those of torch.onnx.export(verify=True)
TORCH_ABSOLUTE, TORCH_RELATIVE = 5e-3, 1e-1
# characters of a tool's message that are kept
MAX_MESSAGE = 200


class Candidate:
    """A file of an exhibit, right or wrong, with everything that a tool may need.

    Attributes:
        network: The network of the exhibit.
        example: The example that an exporter traces it with.
        path: The file.
        sizes: The sizes of each input by its name: numbers, and names for those that vary.
        types: The type of each input.
    """

    def __init__(self, exhibit: Exhibit, path: Path) -> None:
        self.network, self.example, self.path = exhibit.network(), exhibit.example_inputs(), path
        self.sizes: dict[str, list[int | str]] = {}
        self.types: dict[str, str] = {}
        for text in exhibit.inputs:
            name, dtype, dims = re.fullmatch(r"(\w+):(\w+)\[(.*)\]", text).groups()  # type: ignore[union-attr]
            self.types[name] = dtype
            self.sizes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims.split(",")]

    def session(self) -> InferenceSession:
        return InferenceSession(self.path, providers=["CPUExecutionProvider"])


class DifferenceError(Exception):
    """A tool says that file and network differ."""


def ask_torch(candidate: Candidate) -> None:
    expected = candidate.network(*candidate.example)
    feeds = dict(zip(candidate.sizes, (tensor.numpy() for tensor in candidate.example), strict=True))
    (got,) = candidate.session().run(None, feeds)
    found = VerificationInfo.from_tensors("output", expected.detach(), torch.from_numpy(got))
    if found.max_abs_diff >= TORCH_ABSOLUTE or found.max_rel_diff >= TORCH_RELATIVE:
        raise DifferenceError(
            f"absolute difference {found.max_abs_diff:.2g}, relative {found.max_rel_diff:.2g}"
        )


class TorchRunner(BaseRunner):  # type: ignore[misc]
    """Polygraphy's PytRunner, on the CPU."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(name="torch")
        self._candidate = candidate

    def activate_impl(self) -> None:
        pass

    def deactivate_impl(self) -> None:
        pass

    def get_input_metadata_impl(self) -> Any:
        metadata = TensorMetadata()
        for name, sizes in self._candidate.sizes.items():
            shape = [-1 if isinstance(size, str) else size for size in sizes]
            metadata.add(name, np.dtype(self._candidate.types[name]), shape)
        return metadata

    def infer_impl(self, feed_dict: dict[str, Any]) -> dict[str, Any]:
        self.inference_time = 0.0  # which a runner has to set
        with torch.no_grad():
            output = self._candidate.network(*map(torch.from_numpy, feed_dict.values()))
        return {"output": output.contiguous().numpy()}


def ask_polygraphy(candidate: Candidate) -> None:
    runners = [TorchRunner(candidate), OnnxrtRunner(SessionFromOnnx(str(candidate.path)))]
    if not Comparator.compare_accuracy(Comparator.run(runners)):
        raise DifferenceError("outputs differ")


class MuseumConfig(OnnxConfig):  # type: ignore[misc]
    """The inputs of an exhibit, filled by Optimum's functions for sizes, numbers, ids and masks."""

    NORMALIZED_CONFIG_CLASS = NormalizedConfig

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        super().__init__(PretrainedConfig())

    @property
    def inputs(self) -> dict[str, dict[int, str]]:
        return {
            name: {axis: size for axis, size in enumerate(sizes) if isinstance(size, str)}
            for name, sizes in self._candidate.sizes.items()
        }

    @property
    def outputs(self) -> dict[str, dict[int, str]]:
        shape = self._candidate.session().get_outputs()[0].shape
        return {"output": {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}}

    def generate_dummy_inputs(self, framework: str = "pt", **_: Any) -> dict[str, Tensor]:
        usual = {
            "batch": DEFAULT_DUMMY_SHAPES["batch_size"],
            "time": DEFAULT_DUMMY_SHAPES["sequence_length"],
            "width": DEFAULT_DUMMY_SHAPES["width"],
        }
        tensors = {}
        examples = zip(self._candidate.sizes.items(), self._candidate.example, strict=True)
        for (name, sizes), example in examples:
            shape = [usual[size] if isinstance(size, str) else size for size in sizes]
            if example.dtype == torch.bool:
                tensors[name] = DummyInputGenerator.random_mask_tensor(shape).bool()
            elif example.dtype == torch.int64:
                # the ids that a configuration would name
                tensors[name] = DummyInputGenerator.random_int_tensor(shape, int(example.max()) + 1)
            else:
                tensors[name] = DummyInputGenerator.random_float_tensor(shape)
        return tensors


class NamedOutput(nn.Module):
    """The network with its output in a dictionary, as models of Transformers return theirs."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.config = PretrainedConfig()

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        return {"output": self.network(*inputs.values())}


def ask_optimum(candidate: Candidate) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    network = NamedOutput(candidate.network)
    config = MuseumConfig(candidate)
    try:
        validate_model_outputs(config, network, candidate.path, ["output"], use_subprocess=False)
    except ValueError as error:
        raise DifferenceError(str(error).splitlines()[-1]) from error


def ask_downshift(candidate: Candidate) -> None:
    shapes = tuple(
        {0: torch.export.Dim("rows", min=1, max=1 << 16)} if isinstance(sizes[0], str) else None
        for sizes in candidate.sizes.values()
    )
    report = downshift_verify(candidate.network, candidate.path, candidate.example, shapes)
    if not report.passed:
        raise DifferenceError(f"{report.failures} of {report.samples_tested} samples differ")


TOOLS: dict[str, Callable[[Candidate], None]] = {
    "torch verify": ask_torch,
    "polygraphy": ask_polygraphy,
    "Optimum": ask_optimum,
    "downshift-server": ask_downshift,
}
PACKAGES = ("torch", "onnxruntime", "polygraphy", "optimum-onnx", "downshift-server")


def verdict(ask: Callable[[Candidate], None], candidate: Candidate) -> tuple[str, str]:
    """What a tool says: accepted, refused or failed, and why. A failure is an error while it ran the file."""
    try:
        ask(candidate)
    except DifferenceError as difference:
        return "refused", str(difference)[:MAX_MESSAGE]
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}".splitlines()[0][:MAX_MESSAGE]
    return "accepted", ""


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    G_LOGGER.module_severity = G_LOGGER.CRITICAL
    torch.set_num_threads(1)
    print(json.dumps({"kind": "tools", "versions": {name: version(name) for name in PACKAGES}}), flush=True)
    for exhibit in EXHIBITS:
        for file in ("right", "wrong"):
            path = Path(sys.argv[1]) / f"{exhibit.name}.{file}.onnx"
            for tool, ask in TOOLS.items():
                said, why = verdict(ask, Candidate(exhibit, path))
                line = {"exhibit": exhibit.name, "file": file, "tool": tool, "verdict": said, "why": why}
                print(json.dumps({"kind": "verdict", **line}), flush=True)


if __name__ == "__main__":
    main()
