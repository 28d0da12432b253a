"""What can go wrong in `service`, and how it is said.

ServiceError
├── ModelFileError     an .onnx file that onnxruntime cannot open, or whose manifest makes no sense
├── RunError           rows that the model cannot be run on
├── DeviceError        a provider that was asked for and is not there
├── SettingError       a setting that makes no sense
└── RequestError       400: what a caller did wrong or may not have now, by HTTP status
    ├── Unauthorized       401
    ├── Forbidden          403
    ├── Unknown            404
    ├── TooSlow            408
    ├── TooLarge           413
    ├── UnknownEncoding    415
    ├── NotFinite          422
    ├── Broken             500
    ├── NotReady           503
    ├── Overloaded         503, with Retry-After
    └── Expired            504

Each message is one sentence for a person: what was expected, what came, and where. That of a RequestError is
sent as it stands, so it holds no path, no address and no words of a library.
"""

from __future__ import annotations


class ServiceError(Exception):
    """Anything that this package reports to its user rather than crashing on."""

    # of the command line: 1 is a job that failed, 2 is wrong use
    exit_status = 1


class ModelFileError(ServiceError):
    """A model file is missing, damaged, or says of itself what cannot be understood.

    The message is for the log; `public_message` says as much without a path or a word of a library.
    """

    def __init__(self, message: str, public_message: str = "its file cannot be served") -> None:
        super().__init__(message)
        self.public_message = public_message


class RunError(ServiceError):
    """The model cannot be run on these rows. The message is only for the log.

    `caused_by_input` is True if the values in the request are at fault, such as ids outside of a table.
    """

    def __init__(self, message: str, *, caused_by_input: bool = False) -> None:
        super().__init__(message)
        self.caused_by_input = caused_by_input


class DeviceError(ServiceError):
    """The machine lacks the device that was asked for."""

    exit_status = 2


class SettingError(ServiceError):
    """A setting has a value that makes no sense: its name, the value and the valid values."""

    exit_status = 2


class RequestError(ServiceError):
    """A request that gets no answer: `status` of HTTP, and why, in a word that metrics may count by."""

    status = 400
    reason = "bad_request"


class UnauthorizedError(RequestError):
    """No key, or one that is not known."""

    status, reason = 401, "unauthorized"


class ForbiddenError(RequestError):
    """A key that does not open this door."""

    status, reason = 403, "forbidden"


class NotFoundError(RequestError):
    """There is no such model, version, route or gate."""

    status, reason = 404, "unknown"


class RequestTimeoutError(RequestError):
    """The request itself took too long to arrive."""

    status, reason = 408, "too_slow"


class TooLargeError(RequestError):
    """More bytes than a request may have."""

    status, reason = 413, "too_large"


class UnsupportedEncodingError(RequestError):
    """A Content-Encoding that is not spoken here."""

    status, reason = 415, "unknown_encoding"


class NotFiniteError(RequestError):
    """An answer with NaN or Inf in it, which JSON cannot say."""

    status, reason = 422, "not_finite"


class InternalError(RequestError):
    """Something of ours failed; the log says what, the caller is told that it did."""

    status, reason = 500, "broken"


class NotReadyError(RequestError):
    """The model is known, and is not served now."""

    status, reason = 503, "not_ready"


class OverloadedError(RequestError):
    """There is no room to wait in; `retry_after` says in how many seconds there may be."""

    status, reason = 503, "overloaded"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class DeadlineError(RequestError):
    """The deadline passed while the request was waiting; it was not run."""

    status, reason = 504, "expired"
