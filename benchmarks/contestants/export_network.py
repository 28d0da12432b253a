"""Builds one benchmark network and exports it, as a program of its own.

python -m benchmarks.contestants.export_network CONFIG FOLDER      (CONFIG: the network as JSON)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim

from benchmarks.contestants.networks import CLASSES, OUTPUT_NAME, ROW_COUNT, BenchmarkNetwork
from turnpike.export.pipeline import export_model
from turnpike.models.networks import base
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training import checkpoint
from turnpike.models.training.checkpoint import TrainingRecord

# rows that the profile of the gates is computed from
PROFILE_ROWS = 512


def build(network: BenchmarkNetwork) -> base.Net:
    """The PyTorch module, with weights of a fixed seed."""
    torch.manual_seed(0)
    config = MlpConfig(
        inputs=(network.inputs,),
        classes=CLASSES,
        width=network.width,
        layers=network.layers,
        entry=network.entry,
    )
    return build_network(config).eval()


def write_bare_file(module: base.Net, inputs: int, path: Path) -> None:
    """Write the ONNX file that PyTorch makes by itself, without gates and without a proof."""
    torch.onnx.export(
        module,
        (torch.zeros(2, inputs),),
        path,
        input_names=["x"],
        output_names=[OUTPUT_NAME],
        dynamic_shapes=({0: Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def write_reference(module: base.Net, inputs: int, path: Path) -> None:
    """Write the rows of requests, rounded to six decimals as clients send them, and PyTorch's logits."""
    rows = np.random.default_rng(1).standard_normal((ROW_COUNT, inputs))
    rounded = [[round(value, 6) for value in row] for row in rows.tolist()]
    with torch.no_grad():
        logits = module(torch.tensor(rounded))
    path.write_text(json.dumps({"rows": rounded, "logits": logits.tolist()}))


def export(module: base.Net, network: BenchmarkNetwork, folder: Path) -> None:
    """Export in every precision as `turnpike export` does, with proof and profile."""
    weights, rows = folder / "net.safetensors", folder / "rows.npz"
    record = TrainingRecord(
        preset=network.name,
        config=module.config.to_dict(),
        data={},
        recipe={},
        seed=0,
        metrics={},
        history=[],
        torch=torch.__version__,
    )
    checkpoint.save_checkpoint(weights, module.state_dict(), record)
    values = np.random.default_rng(0).standard_normal((PROFILE_ROWS, network.inputs)).astype(np.float32)
    np.savez(rows, x=values)
    for precision in network.precisions:
        # agreement and error of a lower precision are meaningless for random weights, so any is accepted
        export_model(
            weights, folder / precision, data=rows, precision=precision, min_agreement=0.0, max_error=1e9
        )
    weights.unlink()
    rows.unlink()


def main(config_json: str, folder: Path) -> None:
    torch.set_num_threads(1)
    config = json.loads(config_json)
    network = BenchmarkNetwork(**{**config, "precisions": tuple(config["precisions"])})
    module = build(network)
    write_bare_file(module, network.inputs, folder / "bare.onnx")
    write_reference(module, network.inputs, folder / "reference.json")
    export(module, network, folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
