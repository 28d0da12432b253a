"""One network made and exported, in a process of its own.

python -m benchmarks.making NET FOLDER      (NET as JSON)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim

from benchmarks.nets import CLASSES, OUTPUT, ROWS, Net
from export.pipeline import export_model
from models.networks import base as net
from models.networks.families import build_network
from models.networks.feedforward import MlpConfig
from models.training import checkpoint
from models.training.checkpoint import TrainingRecord

# rows that the profile of the gates is taken on
PROFILED = 512


def built(wanted: Net) -> net.Net:
    """The network, with weights of a fixed seed."""
    torch.manual_seed(0)
    config = MlpConfig(
        inputs=(wanted.inputs,),
        classes=CLASSES,
        width=wanted.width,
        layers=wanted.layers,
        entry=wanted.entry,
    )
    return build_network(config).eval()


def write_bare(network: net.Net, inputs: int, to: Path) -> None:
    """The file that anyone would make of it, without gates and without a proof."""
    torch.onnx.export(
        network,
        (torch.zeros(2, inputs),),
        to,
        input_names=["x"],
        output_names=[OUTPUT],
        dynamic_shapes=({0: Dim("batch")},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def write_reference(network: net.Net, inputs: int, to: Path) -> None:
    """The rows that are sent, with as many digits as people send, and the network's answers to them."""
    rows = np.random.default_rng(1).standard_normal((ROWS, inputs))
    short = [[round(value, 6) for value in row] for row in rows.tolist()]
    with torch.no_grad():
        logits = network(torch.tensor(short))
    to.write_text(json.dumps({"rows": short, "logits": logits.tolist()}))


def export(network: net.Net, wanted: Net, to: Path) -> None:
    """The files as `turnpike export` writes them, proved and profiled."""
    weights, rows = to / "net.safetensors", to / "rows.npz"
    record = TrainingRecord(
        preset=wanted.name,
        config=network.config.to_dict(),
        data={},
        recipe={},
        seed=0,
        metrics={},
        history=[],
        torch=torch.__version__,
    )
    checkpoint.save_checkpoint(weights, network.state_dict(), record)
    values = np.random.default_rng(0).standard_normal((PROFILED, wanted.inputs)).astype(np.float32)
    np.savez(rows, x=values)
    for precision in wanted.precisions:
        # how many answers a lower precision leaves as they are says nothing of a network that learned nothing
        export_model(weights, to / precision, data=rows, precision=precision, min_agreement=0.0)
    weights.unlink()
    rows.unlink()


def main(told: str, to: Path) -> None:
    torch.set_num_threads(1)
    values = json.loads(told)
    wanted = Net(**{**values, "precisions": tuple(values["precisions"])})
    network = built(wanted)
    write_bare(network, wanted.inputs, to / "bare.onnx")
    write_reference(network, wanted.inputs, to / "reference.json")
    export(network, wanted, to)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
