"""A user's program over the whole public API. Type checkers read it; it never runs.

`assert_type` fails where a type is Any that should be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pandas as pd
import torch
from fastapi import APIRouter, FastAPI

import turnpike
from turnpike import (
    AsyncClient,
    Cbhg,
    CbhgConfig,
    CbhgNet,
    CharacterCnn,
    CharacterCnnConfig,
    CharacterEncoder,
    Client,
    ClientError,
    CompressionResult,
    ConvConfig,
    ConvGate1d,
    ConvGate2d,
    ConvHighwayLayer,
    ConvNet,
    DeadlineError,
    DenseGate,
    ExportResult,
    GateRecording,
    Gates,
    GridLstm,
    GridLstmBlock,
    GridLstmConfig,
    HighwayJoin,
    HighwayLayer,
    HighwayLstm,
    HighwayLstmConfig,
    HighwayLstmLayer,
    Hooks,
    InputError,
    InputWarning,
    Lesion,
    LesionCurve,
    Maxout,
    Mlp,
    MlpConfig,
    PlainLayer,
    RecurrentHighway,
    RequestRefusedError,
    ResidualLayer,
    Rhn,
    RhnConfig,
    RowsError,
    Runtime,
    ServerError,
    SubSample,
    Transformer,
    TransformerConfig,
    UnavailableError,
    VerificationResult,
    ZeroPad,
    compress_model,
    create_app,
    export_model,
    lifespan,
    open_model,
    record_gates,
    router,
    verify_model,
)
from turnpike import Tensor as RowTensor

Tensor = torch.Tensor
Array = np.ndarray[Any, Any]


def layers(x: Tensor) -> None:
    for layer in (
        Maxout(2, -1),
        DenseGate(4, 4),
        ConvGate1d(4, 4, 3),
        ConvGate2d(4, 4, 3),
        HighwayLayer(4, activation="relu", carry="coupled"),
        ConvHighwayLayer(4, dims=1),
        PlainLayer(4, 8),
        ResidualLayer(4, depth=2),
        ZeroPad(4, 8),
        SubSample(8, 4),
        Cbhg(80),
        CharacterEncoder(256, 16, [(1, 16), (2, 32)], 64),
        RecurrentHighway(4, 8, depth=3),
    ):
        assert_type(layer(x), Tensor)
    assert_type(GridLstmBlock(2, 8)(x, x), tuple[Tensor, Tensor])
    assert_type(HighwayLstmLayer(4, 8, lowest=True)(x), tuple[Tensor, Tensor])
    assert_type(HighwayJoin(4)(x, x), Tensor)


def networks(x: Tensor) -> None:
    for net in (
        Mlp(MlpConfig(inputs=(64,), classes=10, width=64, layers=10)),
        ConvNet(ConvConfig(inputs=(1, 28, 28), classes=10, stages=((16, 2),))),
        CbhgNet(CbhgConfig(inputs=(20, 80), classes=4)),
        CharacterCnn(CharacterCnnConfig(inputs=(20,), classes=4)),
        GridLstm(GridLstmConfig(inputs=(1, 8, 8), classes=10)),
        HighwayLstm(HighwayLstmConfig(inputs=(20, 4), classes=2)),
        Rhn(RhnConfig(inputs=(20, 4), classes=2)),
        Transformer(TransformerConfig(inputs=(20, 4), classes=2)),
    ):
        assert_type(net(x), Tensor)
        with record_gates(net) as recordings:
            assert_type(recordings, dict[str, GateRecording])


def files(module: torch.nn.Module) -> Runtime:
    result = export_model(module, "repository", inputs=["x:float32[batch,64]"])
    assert_type(result, ExportResult)
    assert_type(result.path, Path)
    assert_type(result.warnings, tuple[str, ...])
    verified = verify_model(result.path, module)
    assert_type(verified, VerificationResult)
    assert_type(verified.claims.checked, tuple[str, ...])
    assert_type(verified.claims.claimed, Mapping[str, str])
    assert_type(compress_model(module, "repository", data="rows.npz", max_drop=0.5), CompressionResult)
    runtime = open_model(result.path)
    assert_type(runtime, Runtime)
    (output,) = runtime.run({"x": np.zeros((1, 64), np.float32)}, ["output"])
    assert_type(output.ndim, int)
    return runtime


def service(client: Client) -> None:
    rows = np.zeros((2, 64), np.float32)
    assert_type(client.models(), list[str])
    assert_type(client.ready("digits-10"), bool)
    assert_type(client.predict("digits-10", pd.DataFrame({"a": [1.0]})), pd.DataFrame)
    assert_type(client.predict("digits-10", pd.Series({"a": 1.0})), "pd.Series[float]")
    for values in (rows, [[0.0] * 64], ["a text"], {"x": rows}):
        assert_type(client.infer("digits-10", values)["output"].ndim, int)
    for answer in client.infer_stream("digits-10", iter([rows, rows]), at_once=2):
        assert_type(answer["output"].ndim, int)
    gates = client.gates("digits-10", rows, close=[3], shift={"layer00.transform_gate": 1.0})
    assert_type(gates, Gates)
    lesion = client.lesion("digits-10", rows, close=["layer00.transform_gate"])
    assert_type(lesion, Lesion)
    assert_type(lesion.before["output"].ndim, int)
    curve = client.lesion_curve("digits-10", rows, timeout=3, request_id="mine")
    assert_type(curve, LesionCurve)
    assert_type(client.classify("digits-10", rows, count=3)[0][0].label, str)
    assert_type(client.samples("digits-10")[0].label, str)
    assert_type(client.metadata("digits-10")["inputs"][0]["shape"], list[int])


def look_up(rows: dict[str, Array]) -> dict[str, Array]:
    if not len(rows["id"]):
        raise RowsError("expected ids")
    return {"x": np.zeros((len(rows["id"]), 64), np.float32)}


def application() -> FastAPI:
    hooks = Hooks(before=look_up, inputs=(RowTensor("id", "int64", ("batch",)),))
    app = FastAPI(lifespan=lifespan)
    app.mount("/one", create_app("repository", hooks={"net": hooks}, max_rows=9))
    app.include_router(router("repository", api_keys=("key",)), prefix="/other")
    assert_type(create_app(), FastAPI)
    assert_type(router(), APIRouter)
    return app


async def async_service(client: AsyncClient) -> None:
    async with client:
        assert_type(await client.models(), list[str])
        assert_type(await client.gates("digits-10", [[0.0] * 64]), Gates)
        assert_type(await client.predict("digits-10", pd.DataFrame({"a": [1.0]})), pd.DataFrame)


def warned(warning: InputWarning) -> int:
    assert_type(warning.model, str)
    return len(warning.cells) + warning.more


def errors(error: ClientError) -> str:
    match error:
        case InputError() | RequestRefusedError() | ServerError() | UnavailableError() | DeadlineError():
            assert_type(error.status, int | None)
    assert_type(error.reason, str)
    return turnpike.ClientError("subject", "reason").subject
