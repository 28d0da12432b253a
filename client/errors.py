"""Every error of the client, and its warning.

ClientError
├── InputError             the inputs do not fit the model or gRPC, and were not sent; also a ValueError
├── RequestRefusedError    the service refused the request: status 400 to 499, or gRPC's UNIMPLEMENTED (501)
├── ServerError            the service failed, or something else answered
├── UnavailableError       no connection or status 503, also after the retries
│   └── NotConnectedError  nothing listens at the address
└── DeadlineError          no answer within the client's `timeout`; also a TimeoutError

InputWarning, a UserWarning, is no error: the answer is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# cells that the text of a warning names
MAX_NAMED = 3


class ClientError(Exception):
    """Base of all. `subject` says what was asked of which model and where, `reason` why it failed.

    If the service answered, the reason has its words, and `status` is the HTTP status. A retry may help after
    `retry_after` seconds, or not at all if that is None.
    """

    def __init__(
        self, subject: str, reason: str, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(subject, reason, status, retry_after)
        self.subject: str = subject
        self.reason: str = reason
        self.status: int | None = status
        self.retry_after: float | None = retry_after

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}" + (f" (status {self.status})" if self.status else "")


class InputError(ClientError, ValueError):
    """The inputs do not fit the model."""


class RequestRefusedError(ClientError):
    """The service refused the request."""


class ServerError(ClientError):
    """The service failed, or its answer makes no sense."""


class UnavailableError(ClientError):
    """The service cannot be reached, or does not serve this now."""


class NotConnectedError(UnavailableError):
    """No connection was made, so nothing was sent."""


class DeadlineError(ClientError, TimeoutError):
    """The answer did not come in time."""


class InputWarning(UserWarning):
    """Cells of a table are such as the training did not have, so its answers may be far off.

    Attributes:
        model: The name of the model.
        cells: For each of these cells its `row`, from 0, its `column`, its `value`, and `what` is new.
        more: The number of further such cells, which the service does not list.
    """

    def __init__(self, model: str, cells: Sequence[dict[str, Any]], more: int = 0) -> None:
        super().__init__(model, cells, more)
        self.model: str = model
        self.cells: list[dict[str, Any]] = list(cells)
        self.more: int = more

    def __str__(self) -> str:
        count = len(self.cells) + self.more
        named = [
            f"row {cell['row']}, column {cell['column']!r}: {cell['value']!r} is {cell['what']}"
            for cell in self.cells[:MAX_NAMED]
        ]
        more = [f"and {count - len(named):,} more"] if count > len(named) else []
        cells = "1 cell is" if count == 1 else f"{count:,} cells are"
        return f"model {self.model!r}: {cells} new to its training: {'; '.join([*named, *more])}"
