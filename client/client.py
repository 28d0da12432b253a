"""Clients of a running service: `AsyncClient` with coroutines, and `Client`, which blocks.

The methods are written once, as coroutines. With a transport that blocks, they never wait, so `Client` runs
them without an event loop.
"""

from __future__ import annotations

import functools
import importlib
import random
import re
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

import numpy as np

from turnpike.client.cells import (
    are_plain,
    cell_rows,
    has_cells,
    has_names,
    model_columns,
    table_rows,
    to_numbers,
)
from turnpike.client.errors import (
    DeadlineError,
    InputError,
    InputWarning,
    RequestRefusedError,
    ServerError,
    UnavailableError,
)
from turnpike.client.inputs import Array, Call, Inputs, Rows, TableType, is_table, to_tensors
from turnpike.client.results import Gates, Lesion, to_columns, to_table
from turnpike.common.distribution import needing_extra

if TYPE_CHECKING:
    import grpc
    import httpx

    Transport: TypeAlias = httpx.BaseTransport | httpx.AsyncBaseTransport | grpc.ChannelCredentials

# a header holds no lines, and no spaces around its value
VALID_KEY = re.compile(r"[!-~]([ -~]*[!-~])?")
# for each scheme of an address, the module of a protocol and the extra that it needs. The module's
# AsyncTransport and BlockingTransport, whose coroutines never wait, have `send`, `sleep` and `close`.
TRANSPORTS = {
    "http": ("turnpike.client.http", "client"),
    "https": ("turnpike.client.http", "client"),
    "grpc": ("turnpike.client.grpc", "client-grpc"),
    "grpcs": ("turnpike.client.grpc", "client-grpc"),
}
# seconds before the first retry, which double with each further one, and their maximum
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0

Version = str | int
Detail = Literal["summary", "units", "rows"]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Moves(TypedDict, total=False):
    """The gates to move. A number is a layer, a name is one gate."""

    close: Sequence[int | str]
    open: Sequence[int | str]
    shift: Mapping[str, float]


@dataclass(eq=False, repr=False)
class BaseClient:
    """The arguments of both clients, and requests that are tried again within one deadline."""

    url: str
    _: KW_ONLY
    api_key: str | None = None
    timeout: float = 30.0
    retries: int = 3
    transport: Transport | None = None
    _transport_name = "AsyncTransport"
    # frames from a method's coroutine to its caller, so that a warning names the caller's line
    _stack_level = 2

    def __post_init__(self) -> None:
        scheme = self.url.partition("://")[0].lower()
        if scheme not in TRANSPORTS:
            raise ValueError(f"url: expected {', '.join(TRANSPORTS)} and ://HOST:PORT, got {self.url!r}")
        if self.api_key is not None and not VALID_KEY.fullmatch(self.api_key):
            raise ValueError(
                "api_key: expected printable ASCII characters, without spaces or lines around them"
            )
        module, extra = TRANSPORTS[scheme]
        with needing_extra(f"an address {scheme}://", extra):
            transports = importlib.import_module(module)
        self._transport = getattr(transports, self._transport_name)(self.url, self.api_key, self.transport)
        self._metadata: dict[tuple[str, Version], Any] = {}

    async def _send(self, call: Call, deadline: float = 0, *, retries: int | None = None) -> Any:
        of_model = f" of model {call.model!r}" if call.model else ""
        subject = f"{call.operation}{of_model} at {self.url}"
        deadline = deadline or time.monotonic() + self.timeout
        attempt, retries = 0, self.retries if retries is None else retries
        while (seconds := deadline - time.monotonic()) > 0:
            try:
                return await self._transport.send(call, subject, seconds)
            except UnavailableError as error:
                backoff = min(MAX_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1)  # noqa: S311
                pause = (error.retry_after or 0.0) + backoff
                if error.retry_after is None or attempt >= retries or pause >= deadline - time.monotonic():
                    raise
            attempt += 1
            await self._transport.sleep(pause)
        raise DeadlineError(subject, f"expected an answer within {self.timeout} s, got none")

    async def _run(self, call: Call, inputs: Any, deadline: float = 0) -> Any:
        """Send inputs, in the form that the model's certificate describes if they are more than numbers."""
        deadline = deadline or time.monotonic() + self.timeout
        if not is_table(inputs) and not has_cells(inputs):
            return await self._run_tensors(call, inputs, deadline)
        for _ in range(2):
            certificate = await self._send(Call("certificate", call.model, call.version), deadline)
            answer = await self._run_rows(call, inputs, certificate, deadline)
            # another version of the model may have its features in another order
            if certificate["model_version"] == answer.get("model_version", answer.get("version")):
                return answer
        raise ServerError(f"model {call.model!r}", "expected one version to answer, got two each time")

    async def _run_rows(self, call: Call, rows: Any, certificate: Mapping[str, Any], deadline: float) -> Any:
        """Send a table, or rows that have names, words, dates or blanks."""
        columns = model_columns(certificate["features"])
        if not are_plain(columns):
            cells = cell_rows(rows, columns, call.model)
            if call.operation == "predict":
                return await self._send(call._replace(fields={"instances": cells}), deadline)
            return await self._run_tensors(call, to_numbers(cells, columns, call.model), deadline)
        if is_table(rows):
            # the column of the service's CSV; an older service says nothing of texts
            names = ["text"] if certificate.get("text") else [column.name for column in columns]
            rows = table_rows(rows, names, call.model)
        elif columns and has_names(rows):
            rows = cell_rows(rows, columns, call.model)
        return await self._run_tensors(call, rows, deadline)

    async def _run_tensors(self, call: Call, inputs: Any, deadline: float) -> Any:
        """Send inputs in the form that the model's metadata describes, kept until inputs do not fit."""
        model = call.model, call.version
        known = self._metadata.get(model)
        if known is not None:
            try:
                return await self._send(call._replace(tensors=to_tensors(inputs, known)), deadline)
            except (InputError, RequestRefusedError) as error:
                # status 400: the model may have changed
                if error.status not in {None, 400}:
                    raise
        self._metadata[model] = known = await self._send(Call("metadata", *model), deadline)
        return await self._send(call._replace(tensors=to_tensors(inputs, known)), deadline)


class AsyncClient(BaseClient):
    """A `Client` whose methods are awaited.

    >>> async def names() -> list[str]:
    ...     async with AsyncClient("http://127.0.0.1:8000") as client:
    ...         return await client.models()
    >>> asyncio.run(names())
    ['digits-10']
    """

    async def models(self) -> list[str]:
        """The names of the models that are served."""
        return (await self._send(Call("models")))["models"]

    async def ready(self, model: str = "", version: Version = "") -> bool:
        """Whether the service accepts requests, or whether it serves a model."""
        try:
            # the state now, without retries
            return (await self._send(Call("ready", model, version), retries=0))["ready"]
        except UnavailableError as error:
            if error.status != 503:
                raise
            return False

    async def metadata(self, model: str, version: Version = "") -> dict[str, Any]:
        """The versions of a model, and name, datatype and shape of its inputs and outputs."""
        return await self._send(Call("metadata", model, version))

    async def certificate(self, model: str, version: Version = "") -> dict[str, Any]:
        """What was proved about the file of a model, and what the file says about itself."""
        return await self._send(Call("certificate", model, version))

    @overload
    async def predict(self, model: str, rows: TableType, version: Version = "") -> TableType: ...

    @overload
    async def predict(self, model: str, rows: Rows, version: Version = "") -> dict[str, Array]: ...

    async def predict(self, model: str, rows: Inputs, version: Version = "") -> Any:
        """Labels and probabilities, or other outputs, as an array for each column of the service's CSV.

        For a DataFrame the result is a DataFrame. For a Series, which is one row, it is a Series. Cells of a
        table that are new to the training are an `InputWarning`, one for the call.
        """
        answer = await self._run(Call("predict", model, version), rows)
        if cells := answer.get("warnings"):
            warning = InputWarning(model, cells, answer.get("more_warnings", 0))
            warnings.warn(warning, stacklevel=self._stack_level)
        columns = to_columns(answer["predictions"])
        return to_table(columns, rows) if is_table(rows) else columns

    async def infer(
        self, model: str, inputs: Inputs, outputs: Sequence[str] = (), version: Version = ""
    ) -> dict[str, Array]:
        """The outputs of a model by name, bit for bit. `outputs` may name hidden ones, such as gates."""
        fields = {"outputs": [{"name": name} for name in outputs]} if outputs else {}
        return (await self._run(Call("infer", model, version, fields=fields), inputs))["outputs"]

    async def gates(
        self,
        model: str,
        inputs: Inputs,
        detail: Detail = "summary",
        version: Version = "",
        **moves: Unpack[Moves],
    ) -> Gates:
        """The gates of a run. `detail` adds tensors: figures of each unit, or T of each row."""
        fields = {"parameters": {"detail": detail}, **moves}
        answer = await self._run(Call("gates", model, version, fields=fields), inputs)
        keys = ("model_version", "outputs", "gates", "route", "tensors")
        return Gates(model, *(answer[key] for key in keys))

    async def lesion(
        self, model: str, inputs: Inputs, version: Version = "", **moves: Unpack[Moves]
    ) -> Lesion:
        """The outputs of a model without and with gates closed, opened or shifted."""
        answer = await self._run(Call("lesion", model, version, fields=moves), inputs)
        report = answer["lesion"]
        changed = np.flatnonzero(report["by_row"]["flipped"]) if "by_row" in report else None
        return Lesion(answer["outputs"], answer["lesioned"]["outputs"], changed, report)

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


class Client(BaseClient):
    """A client of the service at an address. Threads may share it.

    Args:
        url: The address, such as `http://127.0.0.1:8000`, or `grpc://127.0.0.1:8001` for gRPC.
        api_key: A key, if the service requires one.
        timeout: Seconds for a method and its retries. The service does not begin a run after that.
        retries: How often to try again if the service has no room or cannot be reached.
        transport: A transport of httpx, for a proxy or certificates of your own, or credentials of grpcio.

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
    infer = _blocking(AsyncClient.infer)
    gates = _blocking(AsyncClient.gates)
    lesion = _blocking(AsyncClient.lesion)
    close = _blocking(AsyncClient.close)

    # type checkers do not see overloads through `_blocking`
    @overload
    def predict(self, model: str, rows: TableType, version: Version = "") -> TableType: ...

    @overload
    def predict(self, model: str, rows: Rows, version: Version = "") -> dict[str, Array]: ...

    def predict(self, model: str, rows: Inputs, version: Version = "") -> Any:
        return _predict(self, model, rows, version)

    predict.__doc__ = AsyncClient.predict.__doc__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
