"""Every error of the service, with its HTTP status.

ServiceError
├── ModelFileError     an .onnx file that onnxruntime cannot open, or whose manifest makes no sense
│   └── UntriedError   a file without a manifest, which needs a trial in a process of its own first
├── RunError           rows on which the model cannot be run
├── HookError          a hook that raised an exception, or returned something wrong
├── DeviceError        a requested device that the machine lacks
├── SettingError       a setting with an invalid value
│   └── StoreError     a remote repository that cannot be listed at the moment
└── RequestError       400, and one class for each other HTTP status
    ├── RowsError                   400, raised by hooks
    ├── UnauthorizedError           401
    ├── ForbiddenError              403
    ├── NotFoundError               404
    ├── RequestTimeoutError         408
    ├── TooLargeError               413
    ├── UnsupportedEncodingError    415
    ├── MisdirectedError            421
    ├── NotFiniteError              422
    ├── InternalError               500
    ├── UnimplementedError          501
    ├── NotReadyError               503
    ├── OverloadedError             503, with Retry-After
    └── DeadlineError               504

Each message is one sentence: what was expected, what came, and where. The message of a RequestError is sent
to the client as it is, so it contains no path, no address and no text from a library.
"""

from __future__ import annotations

from copy import copy
from typing import TypeVar

T = TypeVar("T")


class ServiceError(Exception):
    """Base of every error that this package reports in a sentence instead of crashing."""

    # of the command line: 1 if a job failed, 2 for wrong use
    exit_status = 1


class ModelFileError(ServiceError):
    """A model file is missing, damaged, or has a manifest that makes no sense.

    The message is for the log. `public_message` is for clients: it gives the reason without paths and without
    text from libraries.
    """

    def __init__(self, message: str, public_message: str = "its file cannot be served") -> None:
        super().__init__(message)
        self.public_message = public_message


class UntriedError(ModelFileError):
    """A file without a manifest. To open or run it may take for ever, so it must pass a trial first."""


class RunError(ServiceError):
    """The model cannot be run on these rows. The message is only for the log.

    `caused_by_input` is True if the values in the request are at fault, such as ids outside of a table.
    `out_of_memory` is True if the run needs more memory than the process has. `id_and_range` are an id that
    is outside of a table, and the lowest and the highest one in it, if that is what failed.
    """

    def __init__(
        self,
        message: str,
        *,
        caused_by_input: bool = False,
        out_of_memory: bool = False,
        id_and_range: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.id_and_range = id_and_range
        self.caused_by_input = caused_by_input
        self.out_of_memory = out_of_memory


class HookError(ServiceError):
    """A hook of the application raised an exception, or returned something wrong.

    The message is only for the log: the client gets a 500. `wrong_return` is True for a wrong return, which
    concerns all requests of a run.
    """

    def __init__(self, message: str, *, wrong_return: bool = False) -> None:
        super().__init__(message)
        self.wrong_return = wrong_return


class DeviceError(ServiceError):
    """The machine lacks the requested device, or onnxruntime cannot use it."""

    exit_status = 2


class SettingError(ServiceError):
    """A setting has an invalid value. The message names the setting, the value and the valid values."""

    exit_status = 2


class StoreError(SettingError):
    """A remote repository cannot be listed at the moment. Later it may be, so this is no wrong use."""

    exit_status = 1


class RequestError(ServiceError):
    """A request that fails: its HTTP `status`, and the `reason` under which the metrics count it."""

    status = 400
    reason = "bad_request"


class RowsError(RequestError):
    """Raised by hooks if the rows of a request are at fault. The client gets the text, with status 400."""


class UnauthorizedError(RequestError):
    """The request has no API key, or an unknown one."""

    status, reason = 401, "unauthorized"


class ForbiddenError(RequestError):
    """The API key is valid but does not allow this operation."""

    status, reason = 403, "forbidden"


class NotFoundError(RequestError):
    """There is no such model, version, route or gate."""

    status, reason = 404, "unknown"


class RequestTimeoutError(RequestError):
    """The request took too long to arrive."""

    status, reason = 408, "too_slow"


class TooLargeError(RequestError):
    """The request, or the response that it asks for, is larger than the limit."""

    status, reason = 413, "too_large"


class UnsupportedEncodingError(RequestError):
    """The Content-Encoding is not supported."""

    status, reason = 415, "unknown_encoding"


class MisdirectedError(RequestError):
    """The request is for a host that this service does not answer for."""

    status, reason = 421, "misdirected"


class NotFiniteError(RequestError):
    """The result contains NaN or Inf, which JSON cannot represent."""

    status, reason = 422, "not_finite"


def expect_finite(answer: T | NotFiniteError) -> T:
    """What was computed for one request of a run; raises the error that takes its place."""
    if isinstance(answer, NotFiniteError):
        # a copy: an error holds the frames that it passes, and these hold the result, which holds the answer
        raise copy(answer)
    return answer


class InternalError(RequestError):
    """The service failed. The log has the cause; the client only learns that it happened."""

    status, reason = 500, "broken"


class UnimplementedError(RequestError):
    """There is no such method of gRPC, or a protocol that is not served."""

    status, reason = 501, "unimplemented"


class NotReadyError(RequestError):
    """The model is known but not served at the moment."""

    status, reason = 503, "not_ready"


class OverloadedError(RequestError):
    """A queue or a memory budget is full; `retry_after` is the number of seconds until it may have room."""

    status, reason = 503, "overloaded"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineError(RequestError):
    """The request's deadline passed before its run had begun; it was not run."""

    status, reason = 504, "expired"
