"""Clients of a running service: `AsyncClient` with coroutines, and `Client`, which blocks.

The methods are written once, as coroutines. With a transport that blocks, they never wait, so `Client` runs
them without an event loop.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

import numpy as np

from turnpike.client.cells import (
    are_plain,
    cell_rows,
    column_rows,
    has_cells,
    has_names,
    model_columns,
    table_rows,
    text_rows,
    to_numbers,
)
from turnpike.client.errors import InputError, InputWarning, ServerError, UnavailableError
from turnpike.client.inputs import (
    Array,
    Call,
    Inputs,
    Rows,
    TableType,
    is_columns,
    is_series,
    is_table,
    not_finite,
    to_json_rows,
    to_tensors,
)
from turnpike.client.options import CallOptions, Moves
from turnpike.client.results import (
    ClassScore,
    Gates,
    Lesion,
    LesionCurve,
    ModelMetadata,
    Sample,
    no_predictions,
    to_class_scores,
    to_columns,
    to_samples,
    to_table,
)
from turnpike.client.sender import Sender, Version
from turnpike.client.stream import async_stream, blocking_stream, check_at_once

Detail = Literal["summary", "units", "rows"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# the arguments of gates and lesions that are no options of the call
MOVES = ("close", "open", "shift")


class BaseClient(Sender):
    """The inputs of calls: tables, cells, and tensors."""

    # frames from a method's coroutine to its caller, so that a warning names the caller's line
    _stack_level = 2

    async def _run_inputs(self, call: Call, inputs: Any) -> Any:
        """Run a model on inputs, in the form that its certificate describes if they are more than numbers."""
        if not is_table(inputs) and not has_cells(inputs) and not await self._has_columns(call, inputs):
            return await self._run_tensors(call, inputs)

        async def send(certificate: Any) -> Any:
            return await self._run_rows(call, inputs, certificate)

        answer, certificate = await self._with_document("certificate", call, send)
        # another version of the model may have its features in another order
        for _ in range(2):
            if certificate["model_version"] == answer.get("model_version", answer.get("version")):
                return answer
            certificate = await self._document("certificate", call, outdated=certificate)
            answer = await send(certificate)
        raise ServerError(f"model {call.model!r}", "expected one version to answer, got two each time")

    async def _predict(
        self, model: str, rows: Any, version: Version, options: CallOptions
    ) -> tuple[Any, InputWarning | None]:
        """Predictions in the form of the rows, and a warning about cells that are new to the training."""
        call = self._call("predict", model, version, options)
        if is_series(rows) and (await self._document("certificate", call)).get("text"):
            rows = rows.to_frame("text")
        answer = await self._run_inputs(call, rows)
        if answer["predictions"]:
            columns = to_columns(answer["predictions"])
        else:
            metadata = await self._document("metadata", call)
            columns = no_predictions(metadata, await self._document("certificate", call))
        warning = None
        if cells := answer.get("warnings"):
            warning = InputWarning(model, cells, answer.get("more_warnings", 0))
        return (to_table(columns, rows) if is_table(rows) else columns), warning

    async def _has_columns(self, call: Call, inputs: Any) -> bool:
        """Whether a dict has columns of a table, and not the inputs of the model."""
        if not is_columns(inputs):
            return False
        metadata = await self._document("metadata", call)
        if not inputs.keys().isdisjoint(tensor["name"] for tensor in metadata["inputs"]):
            return False
        certificate = await self._document("certificate", call)
        return bool(certificate["features"] or certificate.get("text"))

    async def _run_rows(self, call: Call, rows: Any, certificate: Mapping[str, Any]) -> Any:
        """Send a table, or rows that have names, words, dates or blanks."""
        columns = model_columns(certificate["features"])
        if is_columns(rows) and (columns or certificate.get("text")):
            rows = column_rows(rows, call.model)
        if not are_plain(columns):
            cells = cell_rows(rows, columns, call.model)
            if call.operation == "predict":
                return await self._run(call._replace(fields={"instances": cells}))
            return await self._run_tensors(call, to_numbers(cells, columns, call.model))
        # the column of the service's CSV; an older service says nothing of texts
        names = ["text"] if certificate.get("text") else [column.name for column in columns]
        if is_table(rows):
            rows = table_rows(rows, names, call.model)
        elif names and has_names(rows):
            is_text = names == ["text"] and not columns
            rows = text_rows(rows, call.model) if is_text else cell_rows(rows, columns, call.model)
        return await self._run_tensors(call, rows)

    async def _run_tensors(self, call: Call, inputs: Any) -> Any:
        """Send inputs in the form that the model's metadata describes."""

        async def send(metadata: Any) -> Any:
            tensors = to_tensors(inputs, metadata)
            if call.operation != "predict":
                return await self._run(call._replace(tensors=tensors))
            reason, may_be_blank = not_finite(tensors)
            if reason and not (may_be_blank and await self._has_blanks(call)):
                raise InputError(f"rows for model {call.model!r}", reason)
            return await self._run(call._replace(fields={"instances": to_json_rows(tensors)}))

        answer, _ = await self._with_document("metadata", call, send)
        return answer

    def _gates_call(
        self, operation: str, model: str, version: Version, moves: Moves, body: Mapping[str, Any]
    ) -> Call:
        options = {name: value for name, value in moves.items() if name not in MOVES}
        if unknown := [name for name in options if name not in CallOptions.__annotations__]:
            names = ", ".join([*MOVES, *CallOptions.__annotations__])
            raise TypeError(f"{operation}: expected {names}, got {unknown[0]!r}")
        fields = {name: value for name, value in moves.items() if name in MOVES}
        return self._call(operation, model, version, cast("CallOptions", options), {**body, **fields})

    async def _has_blanks(self, call: Call) -> bool:
        """Whether some column of a model may be blank, for which JSON has null."""
        certificate = await self._document("certificate", call)
        return any(column.blanks for column in model_columns(certificate["features"]))


class AsyncClient(BaseClient):
    """A `Client` whose methods are awaited.

    >>> async def names() -> list[str]:
    ...     async with AsyncClient("http://127.0.0.1:8000") as client:
    ...         return await client.models()
    >>> asyncio.run(names())
    ['digits-10']
    """

    async def models(self, **options: Unpack[CallOptions]) -> list[str]:
        """The names of the models that are served."""
        return (await self._send(self._call("models", options=options)))["models"]

    async def ready(self, model: str = "", version: Version = "", **options: Unpack[CallOptions]) -> bool:
        """Whether the service accepts requests, or whether it serves a model."""
        try:
            # the state now, without retries
            return (await self._send(self._call("ready", model, version, options), retries=0))["ready"]
        except UnavailableError as error:
            if error.status != 503:
                raise
            return False

    async def metadata(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> ModelMetadata:
        """The versions of a model, and name, datatype and shape of its inputs and outputs."""
        return cast("ModelMetadata", await self._send(self._call("metadata", model, version, options)))

    async def certificate(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """What was proved about the file of a model, and what the file says about itself."""
        return await self._send(self._call("certificate", model, version, options))

    async def samples(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> list[Sample]:
        """Rows to try the model with, from its file."""
        return to_samples(await self._send(self._call("samples", model, version, options)))

    async def profile(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """The gates of a model, their statistics on the rows of the export, and the effect of each layer."""
        return await self._send(self._call("profile", model, version, options))

    async def drift(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """The gates on live traffic, compared with those on the rows of the export. Over HTTP only."""
        return await self._send(self._call("drift", model, version, options))

    async def statistics(
        self, model: str, version: Version = "", **options: Unpack[CallOptions]
    ) -> list[dict[str, Any]]:
        """Counts and times of requests, for each version of a model."""
        return (await self._send(self._call("statistics", model, version, options)))["model_stats"]

    async def load(self, model: str, **options: Unpack[CallOptions]) -> None:
        """Serve the newest files of a model; needs the admin key."""
        await self._send(self._call("load", model, options=options))

    async def unload(self, model: str, **options: Unpack[CallOptions]) -> None:
        """Stop serving a model; needs the admin key."""
        await self._send(self._call("unload", model, options=options))

    @overload
    async def predict(
        self, model: str, rows: TableType, version: Version = "", **options: Unpack[CallOptions]
    ) -> TableType: ...

    @overload
    async def predict(
        self, model: str, rows: Rows, version: Version = "", **options: Unpack[CallOptions]
    ) -> dict[str, Array]: ...

    async def predict(
        self, model: str, rows: Inputs, version: Version = "", **options: Unpack[CallOptions]
    ) -> Any:
        """Labels and probabilities, or other outputs, as an array for each column of the service's CSV.

        For a DataFrame the result is a DataFrame. For a Series, which is one row, it is a Series; a Series of
        texts is a row for each text. Cells of a table that are new to the training are an `InputWarning`, one
        for the call.
        """
        predictions, warning = await self._predict(model, rows, version, options)
        if warning:
            warnings.warn(warning, stacklevel=self._stack_level)
        return predictions

    async def predict_stream(
        self,
        model: str,
        batches: Iterable[Inputs] | AsyncIterable[Inputs],
        version: Version = "",
        *,
        at_once: int = 4,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[Any]:
        """What `predict` returns for each batch, in their order, with `at_once` requests under way.

        A batch is read when there is room for its answer. An error ends the stream.
        """
        check_at_once(at_once)

        async def send(batch: Inputs) -> tuple[Any, InputWarning | None]:
            return await self._predict(model, batch, version, options)

        async for predictions, warning in async_stream(batches, send, at_once):
            if warning:
                warnings.warn(warning, stacklevel=2)
            yield predictions

    async def infer(
        self,
        model: str,
        inputs: Inputs,
        outputs: Sequence[str] = (),
        version: Version = "",
        **options: Unpack[CallOptions],
    ) -> dict[str, Array]:
        """The outputs of a model by name, bit for bit. `outputs` may name hidden ones, such as gates."""
        names = [outputs] if isinstance(outputs, str) else outputs
        body = {"outputs": [{"name": name} for name in names]} if len(names) else {}
        call = self._call("infer", model, version, options, body)
        return (await self._run_inputs(call, inputs))["outputs"]

    async def infer_stream(
        self,
        model: str,
        batches: Iterable[Inputs] | AsyncIterable[Inputs],
        outputs: Sequence[str] = (),
        version: Version = "",
        *,
        at_once: int = 4,
        **options: Unpack[CallOptions],
    ) -> AsyncIterator[dict[str, Array]]:
        """What `infer` returns for each batch, as `predict_stream` does."""
        check_at_once(at_once)

        async def send(batch: Inputs) -> dict[str, Array]:
            return await self.infer(model, batch, outputs, version, **options)

        async for answer in async_stream(batches, send, at_once):
            yield answer

    async def classify(
        self,
        model: str,
        inputs: Inputs,
        count: int = 1,
        version: Version = "",
        **options: Unpack[CallOptions],
    ) -> list[list[ClassScore]]:
        """The `count` best classes of each row, with the values that the first output has for them."""
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"classify of model {model!r}", f"expected a count from 1, got {count!r}")
        call = self._call("infer", model, version, options)

        async def send(metadata: Any) -> Any:
            name = metadata["outputs"][0]["name"]
            body = {"outputs": [{"name": name, "parameters": {"classification": count}}]}
            return (await self._run_inputs(call._replace(fields=body), inputs))["outputs"][name]

        texts, _ = await self._with_document("metadata", call, send)
        return to_class_scores(texts)

    async def gates(
        self,
        model: str,
        inputs: Inputs,
        detail: Detail = "summary",
        version: Version = "",
        **moves: Unpack[Moves],
    ) -> Gates:
        """The gates of a run. `detail` adds tensors: figures of each unit, or T of each row."""
        if detail not in get_args(Detail):
            expected = ", ".join(map(repr, get_args(Detail)))
            raise InputError(f"gates of model {model!r}", f"detail: expected {expected}, got {detail!r}")
        call = self._gates_call("gates", model, version, moves, {"parameters": {"detail": detail}})
        answer = await self._run_inputs(call, inputs)
        keys = ("model_version", "outputs", "gates", "route", "tensors")
        return Gates(model, *(answer[key] for key in keys))

    async def lesion(
        self, model: str, inputs: Inputs, version: Version = "", **moves: Unpack[Moves]
    ) -> Lesion:
        """The outputs of a model without and with gates closed, opened or shifted."""
        answer = await self._run_inputs(self._gates_call("lesion", model, version, moves, {}), inputs)
        report = answer["lesion"]
        changed = np.flatnonzero(report["by_row"]["flipped"]) if "by_row" in report else None
        return Lesion(answer["outputs"], answer["lesioned"]["outputs"], changed, report)

    async def lesion_curve(
        self, model: str, inputs: Inputs, version: Version = "", **options: Unpack[CallOptions]
    ) -> LesionCurve:
        """What closing each layer alone changes."""
        call = self._call("lesion_curve", model, version, options, {"curve": True})
        answer = await self._run_inputs(call, inputs)
        return LesionCurve(answer["outputs"], answer["curve"]["layers"], answer["curve"])

    async def close(self) -> None:
        """Close the connections, as the end of a `with` block does."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _blocking(
    method: Callable[Concatenate[Any, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Client, Arguments], Result]:
    def run(client: Client, /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        try:
            method(client, *arguments, **options).send(None)
        except StopIteration as returned:
            return returned.value
        raise AssertionError("expected a transport that blocks, got one that waits")

    functools.update_wrapper(run, method)
    return run


_predict = _blocking(AsyncClient.predict)
_predict_batch = _blocking(AsyncClient._predict)


class Client(BaseClient):
    """A client of the service at an address. Threads may share it.

    Args:
        url: The address, such as `http://127.0.0.1:8000`, or `grpc://127.0.0.1:8001` for gRPC.
        api_key: A key, if the service requires one.
        timeout: Seconds for a method and its retries. The service does not begin a run after that.
        retries: How often to try again if the service has no room or cannot be reached. A service that has
            answered once and restarts is waited for until the timeout.
        headers: Headers of every request, or metadata of gRPC.
        tls: An `ssl.SSLContext` for certificates of your own, or credentials of grpcio for an address grpcs://.
        max_answer: Bytes that an answer may have.

    >>> with Client("http://127.0.0.1:8000") as client:
    ...     predictions = client.predict("digits-10", digits)
    >>> predictions["label"]
    array(['0', '1'], dtype='<U1')
    """

    _transport_name = "BlockingTransport"
    _stack_level = 4
    models = _blocking(AsyncClient.models)
    ready = _blocking(AsyncClient.ready)
    metadata = _blocking(AsyncClient.metadata)
    certificate = _blocking(AsyncClient.certificate)
    samples = _blocking(AsyncClient.samples)
    profile = _blocking(AsyncClient.profile)
    drift = _blocking(AsyncClient.drift)
    statistics = _blocking(AsyncClient.statistics)
    load = _blocking(AsyncClient.load)
    unload = _blocking(AsyncClient.unload)
    infer = _blocking(AsyncClient.infer)
    classify = _blocking(AsyncClient.classify)
    gates = _blocking(AsyncClient.gates)
    lesion = _blocking(AsyncClient.lesion)
    lesion_curve = _blocking(AsyncClient.lesion_curve)
    close = _blocking(AsyncClient.close)

    # type checkers do not see overloads through `_blocking`
    @overload
    def predict(
        self, model: str, rows: TableType, version: Version = "", **options: Unpack[CallOptions]
    ) -> TableType: ...

    @overload
    def predict(
        self, model: str, rows: Rows, version: Version = "", **options: Unpack[CallOptions]
    ) -> dict[str, Array]: ...

    def predict(self, model: str, rows: Inputs, version: Version = "", **options: Unpack[CallOptions]) -> Any:
        return _predict(self, model, rows, version, **options)

    predict.__doc__ = AsyncClient.predict.__doc__

    def predict_stream(
        self,
        model: str,
        batches: Iterable[Inputs],
        version: Version = "",
        *,
        at_once: int = 4,
        **options: Unpack[CallOptions],
    ) -> Iterator[Any]:
        check_at_once(at_once)

        def send(batch: Inputs) -> tuple[Any, InputWarning | None]:
            return _predict_batch(self, model, batch, version, options)

        for predictions, warning in blocking_stream(batches, send, at_once):
            if warning:
                warnings.warn(warning, stacklevel=2)
            yield predictions

    predict_stream.__doc__ = AsyncClient.predict_stream.__doc__

    def infer_stream(
        self,
        model: str,
        batches: Iterable[Inputs],
        outputs: Sequence[str] = (),
        version: Version = "",
        *,
        at_once: int = 4,
        **options: Unpack[CallOptions],
    ) -> Iterator[dict[str, Array]]:
        check_at_once(at_once)

        def send(batch: Inputs) -> dict[str, Array]:
            return self.infer(model, batch, outputs, version, **options)

        yield from blocking_stream(batches, send, at_once)

    infer_stream.__doc__ = AsyncClient.infer_stream.__doc__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
