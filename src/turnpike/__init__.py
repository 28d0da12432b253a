"""Highway networks: train them in PyTorch, export them to ONNX with proof, serve them, and see their gates.

A package is imported only when one of its names is used. So `import turnpike` imports neither torch, onnx nor
onnxruntime, and `from turnpike import Client` needs only NumPy and aiohttp.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

_package = Path(__file__).parent
if (_package / "service").is_symlink():
    # a checkout, where the packages are folders at the root of the repository: import them from there, so
    # that modules have their real file names, as debuggers and coverage expect
    __path__.insert(0, str(_package.parents[1]))

from turnpike.common.distribution import VERSION, needing_extra  # noqa: E402
from turnpike.common.telemetry import turn_off_telemetry  # noqa: E402

# onnxruntime reads its switch when it is imported
turn_off_telemetry()

__version__ = VERSION

if TYPE_CHECKING:
    from turnpike.client.client import AsyncClient, Client
    from turnpike.client.errors import (
        ClientError,
        DeadlineError,
        InputError,
        InputWarning,
        RequestRefusedError,
        ServerError,
        UnavailableError,
    )
    from turnpike.client.results import Gates, Lesion, LesionCurve
    from turnpike.export.compress.remove_units import CompressionResult, compress_model
    from turnpike.export.pipeline import ExportResult, export_model
    from turnpike.export.verify import VerificationResult, verify_model
    from turnpike.models.layers.activation import Maxout
    from turnpike.models.layers.gate import ConvGate1d, ConvGate2d, DenseGate, GateRecording, record_gates
    from turnpike.models.layers.highway import ConvHighwayLayer, HighwayLayer
    from turnpike.models.layers.resize import SubSample, ZeroPad
    from turnpike.models.layers.transform import PlainLayer, ResidualLayer
    from turnpike.models.networks.cbhg import Cbhg, CbhgConfig, CbhgNet
    from turnpike.models.networks.character_cnn import CharacterCnn, CharacterCnnConfig, CharacterEncoder
    from turnpike.models.networks.feedforward import ConvConfig, ConvNet, Mlp, MlpConfig
    from turnpike.models.networks.grid_lstm import GridLstm, GridLstmBlock, GridLstmConfig
    from turnpike.models.networks.recurrent import (
        HighwayLstm,
        HighwayLstmConfig,
        HighwayLstmLayer,
        RecurrentHighway,
        Rhn,
        RhnConfig,
    )
    from turnpike.models.networks.transformer import HighwayJoin, Transformer, TransformerConfig
    from turnpike.service.artifact.runtime import Runtime, open_model
    from turnpike.service.artifact.tensor import Tensor
    from turnpike.service.embedded.create_app import create_app, lifespan, router
    from turnpike.service.errors import RowsError
    from turnpike.service.registry.hooks import Hooks

__all__ = [
    "AsyncClient",
    "Cbhg",
    "CbhgConfig",
    "CbhgNet",
    "CharacterCnn",
    "CharacterCnnConfig",
    "CharacterEncoder",
    "Client",
    "ClientError",
    "CompressionResult",
    "ConvConfig",
    "ConvGate1d",
    "ConvGate2d",
    "ConvHighwayLayer",
    "ConvNet",
    "DeadlineError",
    "DenseGate",
    "ExportResult",
    "GateRecording",
    "Gates",
    "GridLstm",
    "GridLstmBlock",
    "GridLstmConfig",
    "HighwayJoin",
    "HighwayLayer",
    "HighwayLstm",
    "HighwayLstmConfig",
    "HighwayLstmLayer",
    "Hooks",
    "InputError",
    "InputWarning",
    "Lesion",
    "LesionCurve",
    "Maxout",
    "Mlp",
    "MlpConfig",
    "PlainLayer",
    "RecurrentHighway",
    "RequestRefusedError",
    "ResidualLayer",
    "Rhn",
    "RhnConfig",
    "RowsError",
    "Runtime",
    "ServerError",
    "SubSample",
    "Tensor",
    "Transformer",
    "TransformerConfig",
    "UnavailableError",
    "VerificationResult",
    "ZeroPad",
    "compress_model",
    "create_app",
    "export_model",
    "lifespan",
    "open_model",
    "record_gates",
    "router",
    "verify_model",
]

# module: the names above that it defines; the imports for type checkers at the top say the same
_PUBLIC_NAMES = {
    "turnpike.client.client": ("AsyncClient", "Client"),
    "turnpike.client.errors": (
        "ClientError",
        "DeadlineError",
        "InputError",
        "InputWarning",
        "RequestRefusedError",
        "ServerError",
        "UnavailableError",
    ),
    "turnpike.client.results": ("Gates", "Lesion", "LesionCurve"),
    "turnpike.export.compress.remove_units": ("CompressionResult", "compress_model"),
    "turnpike.export.pipeline": ("ExportResult", "export_model"),
    "turnpike.export.verify": ("VerificationResult", "verify_model"),
    "turnpike.models.layers.activation": ("Maxout",),
    "turnpike.models.layers.gate": ("ConvGate1d", "ConvGate2d", "DenseGate", "GateRecording", "record_gates"),
    "turnpike.models.layers.highway": ("ConvHighwayLayer", "HighwayLayer"),
    "turnpike.models.layers.resize": ("SubSample", "ZeroPad"),
    "turnpike.models.layers.transform": ("PlainLayer", "ResidualLayer"),
    "turnpike.models.networks.cbhg": ("Cbhg", "CbhgConfig", "CbhgNet"),
    "turnpike.models.networks.character_cnn": ("CharacterCnn", "CharacterCnnConfig", "CharacterEncoder"),
    "turnpike.models.networks.feedforward": ("ConvConfig", "ConvNet", "Mlp", "MlpConfig"),
    "turnpike.models.networks.grid_lstm": ("GridLstm", "GridLstmBlock", "GridLstmConfig"),
    "turnpike.models.networks.recurrent": (
        "HighwayLstm",
        "HighwayLstmConfig",
        "HighwayLstmLayer",
        "RecurrentHighway",
        "Rhn",
        "RhnConfig",
    ),
    "turnpike.models.networks.transformer": ("HighwayJoin", "Transformer", "TransformerConfig"),
    "turnpike.service.artifact.runtime": ("Runtime", "open_model"),
    "turnpike.service.artifact.tensor": ("Tensor",),
    "turnpike.service.embedded.create_app": ("create_app", "lifespan", "router"),
    "turnpike.service.errors": ("RowsError",),
    "turnpike.service.registry.hooks": ("Hooks",),
}

# package: the extra that installs what its names need
_EXTRAS = {"client": "client", "export": "export", "models": "train", "service": "serve"}

if not TYPE_CHECKING:  # type checkers read the imports above, and so report a name that does not exist

    def __getattr__(name: str) -> Any:
        for module, names in _PUBLIC_NAMES.items():
            if name in names:
                with needing_extra(f"turnpike.{name}", _EXTRAS[module.split(".")[1]]):
                    return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
