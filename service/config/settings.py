"""Every setting of the service: what it is called, and what it may be. The values come from `sources.py`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from service.artifact.limits import MAX_ROWS

MIB = 1 << 20
PREFIX = "TURNPIKE_"
# neither shown nor taken from the command line, where every user of the machine could read them
SECRETS = frozenset({"api_keys", "admin_key"})
MAX_WORKERS = 256
# words that stand for a number, which sources.py puts in its place
KEYWORDS = {"workers": "auto"}
# files that the service reads, which may be pipes
FILE_SETTINGS = ("tls_cert", "tls_key", "api_keys_file", "admin_key_file")

Strings = tuple[str, ...]


class Settings(BaseModel):
    """Made directly, it is the defaults and what it is given, whatever the environment says."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    # what is served
    models: Path | None = Field(None, description="Model repository; left out, the bundled digits model.")
    versions: str = Field("latest", description="Versions to serve: latest, all, or a list such as 1,3.")
    poll: float = Field(0, ge=0, description="Seconds between looks into the repository; 0 for never.")
    allow_unverified: bool = Field(False, description="Serve files without a manifest, too.")
    check_parity: bool = Field(False, description="Compare the device with the CPU before a model is served.")

    # where
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 for a free one.")
    tls_cert: Path | None = Field(None, description="Certificate chain (PEM); with --tls-key, speak HTTPS.")
    tls_key: Path | None = Field(None, description="Private key of the certificate (PEM).")
    cors: Strings = Field((), description="Origins whose pages may call the service; none by default.")

    # how it runs
    workers: int = Field(
        1, ge=1, le=MAX_WORKERS, description="Processes on the one port; auto for what suits."
    )
    threads: int = Field(0, ge=0, le=1024, description="Threads of a run; 0 shares the CPUs among workers.")
    device: Literal["cpu", "cuda"] = Field("cpu", description="Where models run.")
    max_batch: int = Field(MAX_ROWS, ge=1, le=MAX_ROWS, description="Rows of one run.")
    max_delay_ms: float = Field(0, ge=0, le=10_000, description="How long a run may wait for more rows.")
    exact: bool = Field(True, description="Batch only where that changes no bit of any answer.")
    queue: int = Field(1024, ge=1, description="Requests that may wait for a model; more are refused.")

    # what a request may be
    timeout_ms: int = Field(30_000, ge=1, description="How long a request may wait for its run.")
    max_body: int = Field(64 * MIB, ge=1, description="Bytes of a request, decompressed.")
    max_json: int = Field(16 * MIB, ge=1, description="Bytes of JSON in a request; binary data may be more.")
    max_held: int = Field(512 * MIB, ge=1, description="Bytes of all requests held at once, by a worker.")
    max_rows: int = Field(4096, ge=1, description="Rows of a request.")
    max_depth: int = Field(32, ge=4, le=512, description="How deep JSON may be nested.")
    max_header: int = Field(32 * 1024, ge=1024, description="Bytes of a request's line and headers.")
    max_gates: int = Field(64 * MIB, ge=1, description="Bytes of gates in one answer.")
    header_seconds: float = Field(10, gt=0, description="How long a request's headers may take to arrive.")
    body_seconds: float = Field(60, gt=0, description="How long a request's body may take to arrive.")
    idle_seconds: float = Field(75, gt=0, description="How long a connection may lie idle.")

    # who may ask
    api_keys_file: Path | None = Field(
        None, description="File of API keys, one a line; with it, a key is needed."
    )
    api_keys: Strings = Field((), repr=False, description="API keys; a file is the better place.")
    admin_key_file: Path | None = Field(
        None, description="File with the admin key; with it, admin routes are on."
    )
    admin_key: str | None = Field(None, repr=False, description="The admin key; a file is the better place.")

    # how it ends
    drain_wait: float = Field(1, ge=0, description="Seconds between turning not ready and closing the port.")
    drain_seconds: float = Field(30, ge=0, description="Seconds that requests have to finish after that.")

    # what can be seen
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least that is logged."
    )
    access_log: bool = Field(True, description="Log every request.")
    dashboard: bool = Field(True, description="Serve the dashboard at /.")
    docs: bool = Field(True, description="Serve /docs and /openapi.json.")
    drift_rows: int = Field(10_000, ge=100, description="Rows of live traffic that drift is told from.")
    otlp: str | None = Field(None, description="Address of an OpenTelemetry collector (OTLP over HTTP).")

    @field_validator("cors", "api_keys", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """A text is a list with commas between."""
        words = [word.strip() for word in value.split(",")] if isinstance(value, str) else value
        if isinstance(words, list | tuple) and not all(words):
            raise ValueError("expected words with commas between, and one of them is empty")
        return words

    @field_validator("*", mode="before")
    @classmethod
    def _said(cls, value: Any) -> Any:
        # an empty variable is more often a secret that failed to arrive than a wish
        if value == "":
            raise ValueError("got an empty value: give one, or leave it out")
        return value

    @field_validator("versions")
    @classmethod
    def _versions(cls, value: str) -> str:
        if value not in ("latest", "all") and not re.fullmatch(r"[1-9]\d{0,9}(,[1-9]\d{0,9})*", value):
            raise ValueError(f"expected latest, all, or version numbers such as 1,3, got {value!r}")
        return value

    @field_validator("models")
    @classmethod
    def _folder(cls, value: Path | None) -> Path | None:
        if value is not None and not (value.is_dir() and os.access(value, os.R_OK | os.X_OK)):
            raise ValueError(f"expected a folder of models that can be read, got {str(value)!r}")
        return value

    @field_validator(*FILE_SETTINGS)
    @classmethod
    def _file(cls, value: Path | None) -> Path | None:
        if value is not None and (value.is_dir() or not os.access(value, os.R_OK)):
            raise ValueError(f"expected a file that can be read, got {str(value)!r}")
        return value

    @field_validator("cors")
    @classmethod
    def _origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ValueError(f"expected origins such as https://example.org, or *, got {origin!r}")
        return value

    @field_validator("otlp")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://\S+", value):
            raise ValueError(f"expected an address such as http://127.0.0.1:4318, got {value!r}")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise ValueError(f"{missing}: expected a file, as {given} is given, got none: HTTPS takes both")
        if self.max_held < self.max_body:
            raise ValueError(
                f"--max-held: expected at least the {self.max_body} bytes of --max-body, got {self.max_held}"
            )
        for key, file in (("api_keys", "api_keys_file"), ("admin_key", "admin_key_file")):
            if getattr(self, key) and getattr(self, file):
                raise ValueError(
                    f"--{file.replace('_', '-')}: expected it alone, and {PREFIX}{key.upper()} is given, too"
                )
        return self
