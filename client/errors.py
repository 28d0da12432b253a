"""Every error of the client.

ClientError
├── InputError             the inputs do not fit the model or gRPC, and were not sent; also a ValueError
├── RequestRefusedError    the service refused the request: status 400 to 499, or gRPC's UNIMPLEMENTED (501)
├── ServerError            the service failed, or something else answered
├── UnavailableError       no connection or status 503, also after the retries
└── DeadlineError          no answer within the client's `timeout`; also a TimeoutError
"""

from __future__ import annotations


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


class DeadlineError(ClientError, TimeoutError):
    """The answer did not come in time."""
