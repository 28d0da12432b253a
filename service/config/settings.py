"""Every setting of the service: its name, type, default, description and valid values.

`resolve.py` collects the values from flags, the environment and a file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from turnpike.service.artifact.limits import MAX_ROWS

MIB = 1 << 20
PREFIX = "TURNPIKE_"
# never printed, and not options of the command line, which every user of the machine can read
SECRETS = frozenset({"api_keys", "admin_key"})
MAX_WORKERS = 256
# with a shorter limit, a busy worker could be taken for one that hangs
MIN_WORKER_SECONDS, MAX_WORKER_SECONDS = 1, 3600
# The default of `poll` for a remote repository: stores limit requests, and some charge for them.
REMOTE_POLL_SECONDS = 30.0
# words that may be given instead of a number; resolve.py replaces them by one
KEYWORDS = {"workers": "auto"}
# settings that name files to read, which may be pipes
FILE_SETTINGS = ("tls_cert", "tls_key", "api_keys_file", "admin_key_file")

# a name, all names below one, an address, or any host; a port is ignored
ALLOWED_HOST = re.compile(r"(?:\*|(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?|\[[\da-fA-F:.]+\])(?::\d{1,5})?", re.ASCII)

# an address of a remote repository, and one with a password
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]\S*|file:///\S+")
PASSWORD = re.compile(r"://[^/]*:[^/]*@")

# where payload events are sent: no password, which `--print-config` would show
RECEIVER = re.compile(r"https?://(?:[\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?(?:/[!$-~]*)?", re.ASCII)
MAX_PORT = 65_535

Strings = tuple[str, ...]


class Settings(BaseModel):
    """All settings, checked. Creating one directly does not read the environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    # what is served
    models: Path | str | None = Field(
        None,
        description="Models to serve: a repository, a run, or one model, version or .onnx file; "
        "or the address of a remote repository, such as s3://bucket/models. "
        "Default: the bundled digits model.",
    )
    versions: str = Field("latest", description="Versions to serve: latest, all, or a list such as 1,3.")
    poll: float = Field(
        2,
        ge=0,
        description="Seconds between scans of the repository for changes; 0 for never. "
        f"Default for a remote repository: {REMOTE_POLL_SECONDS:g}.",
    )
    model_cache: Path | None = Field(
        None,
        description="Folder for files of a remote repository. Default: models in turnpike's cache folder.",
    )
    weights_cache: int = Field(
        4 << 30,
        ge=0,
        description="Bytes for prepared weights in turnpike's cache folder, which workers share; 0 for none.",
    )
    store_seconds: float = Field(
        30,
        gt=0,
        description="Seconds of silence after which a scan of a remote repository is given up.",
    )
    allow_unverified: bool = Field(False, description="Also serve files without a manifest.")
    trial_seconds: float = Field(
        60,
        gt=0,
        description="Seconds that a file without a manifest may take to load in a process of its own, "
        "before workers load it.",
    )
    check_parity: bool = Field(
        False, description="Compare each model on the device with the CPU before it is served."
    )

    # where it listens
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 for a free one.")
    grpc_port: int | None = Field(
        None, ge=0, le=65535, description="Port for gRPC; 0 for a free one. Default: no gRPC."
    )
    tls_cert: Path | None = Field(
        None, description="Certificate chain (PEM) for HTTPS, together with --tls-key."
    )
    tls_key: Path | None = Field(None, description="Private key of the certificate (PEM).")
    cors: Strings = Field((), description="Origins whose web pages may call the service. Default: none.")
    allowed_hosts: Strings = Field(
        (),
        description="Hosts that requests may name, such as *.example.org; * for any. "
        "Default: any, but on a loopback address only this machine's own names.",
    )

    # how it runs
    workers: int = Field(
        1, ge=1, le=MAX_WORKERS, description="Worker processes, which share the ports; auto chooses a number."
    )
    worker_seconds: float = Field(
        30,
        ge=0,
        le=MAX_WORKER_SECONDS,
        description="Seconds of silence after which a worker is replaced; 0 for never.",
    )
    threads: int = Field(
        0, ge=0, le=1024, description="Threads for each run; 0 divides the CPUs among workers."
    )
    device: Literal["cpu", "cuda", "openvino"] = Field("cpu", description="Device that models run on.")
    precision: Literal["fp32", "bf16"] = Field(
        "fp32", description="Precision of the device's arithmetic; bf16 needs --device openvino."
    )
    max_batch: int = Field(MAX_ROWS, ge=1, le=MAX_ROWS, description="Maximum rows in one run.")
    max_delay_ms: float = Field(
        0, ge=0, le=10_000, description="Milliseconds that a run may wait for more rows."
    )
    exact: bool = Field(True, description="Batch only if that changes no bit of any result.")
    queue: int = Field(1024, ge=1, description="Requests that may wait for a model; more are refused.")

    # an application of the user
    app: str | None = Field(
        None,
        description="Application with turnpike.create_app or turnpike.router in it, as MODULE:NAME. "
        "It says what is served.",
    )
    fast_routes: bool = Field(
        False,
        description="Answer the routes of the service without the middleware, dependencies and exception "
        "handlers of --app.",
    )

    # on Ray
    engine: Literal["local", "ray"] = Field(
        "local", description="What runs the service: processes on this machine, or a Ray cluster."
    )
    min_replicas: int = Field(1, ge=0, description="Replicas at least; each is one worker on Ray.")
    max_replicas: int = Field(1, ge=1, description="Replicas at most, with more requests.")
    replica_requests: int = Field(
        4, ge=1, description="Requests at once for each replica, which Ray adds and removes replicas for."
    )
    replica_cpus: float = Field(1, ge=0, description="CPUs that Ray reserves for a replica.")
    replica_gpus: float = Field(0, ge=0, description="GPUs that Ray reserves for a replica, such as 0.5.")
    replica_models: int = Field(
        0,
        ge=0,
        description="Models that a replica holds at once, loaded when they are asked for; 0 for all.",
    )

    # limits on requests
    timeout_ms: int = Field(30_000, ge=1, description="Milliseconds that a request may wait for its run.")
    max_body: int = Field(64 * MIB, ge=1, description="Maximum bytes of a request body, decompressed.")
    max_inflate_ratio: int = Field(
        200, ge=1, description="How many times larger than its compressed size a body may be, above 1 MiB."
    )
    max_json: int = Field(
        16 * MIB, ge=1, description="Maximum bytes of JSON in a request; binary data may be more."
    )
    max_held: int = Field(
        512 * MIB,
        ge=1,
        description="Maximum bytes of bodies, decoded requests and unread answers that a worker holds; "
        "by default less in a small container.",
    )
    max_rows: int = Field(4096, ge=1, description="Maximum rows in a request.")
    max_depth: int = Field(32, ge=4, le=512, description="Maximum nesting depth of JSON in a request.")
    max_header: int = Field(
        32 * 1024, ge=1024, description="Maximum bytes of a request's line and headers, and of its trailers."
    )
    max_gates: int = Field(64 * MIB, ge=1, description="Maximum bytes of gate data in one response.")
    header_seconds: float = Field(
        10, gt=0, description="Seconds that a request's headers may take to arrive."
    )
    body_seconds: float = Field(60, gt=0, description="Seconds that a request's body may take to arrive.")
    idle_seconds: float = Field(75, gt=0, description="Seconds that a connection may be idle.")

    # keys
    api_keys_file: Path | None = Field(
        None, description="File of API keys, one per line. If set, requests need a key."
    )
    api_keys: Strings = Field((), repr=False, description="API keys, separated by commas. A file is safer.")
    admin_key_file: Path | None = Field(
        None, description="File with the admin key. If set, admin routes are enabled."
    )
    admin_key: str | None = Field(None, repr=False, description="The admin key. A file is safer.")

    # how it stops
    drain_wait: float = Field(1, ge=0, description="Seconds between becoming not ready and closing the port.")
    drain_seconds: float = Field(30, ge=0, description="Seconds that requests then have to finish.")

    # logs, pages and monitoring
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level of messages that are logged."
    )
    access_log: bool = Field(True, description="Log every request.")
    dashboard: bool = Field(True, description="Serve the dashboard at /.")
    docs: bool = Field(True, description="Serve /docs and /openapi.json.")
    drift_rows: int = Field(10_000, ge=100, description="Rows of live traffic that drift is computed from.")
    old_predict: bool = Field(
        False, description="Answer :predict in the form of earlier versions, without outputs by name."
    )
    otlp: str | None = Field(None, description="URL of an OpenTelemetry collector (OTLP over HTTP).")
    payload_events: str | None = Field(
        None, description="URL to which requests and answers of models are sent, as KServe's CloudEvents."
    )
    payload_mode: Literal["all", "request", "response"] = Field(
        "all", description="Which payload events to send."
    )

    @field_validator("cors", "allowed_hosts", "api_keys", mode="before")
    @classmethod
    def _split_list(cls, value: Any) -> Any:
        """Split a string at its commas."""
        items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
        if isinstance(items, list | tuple) and not all(items):
            raise ValueError("expected values separated by commas, and one of them is empty")
        return items

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_empty(cls, value: Any) -> Any:
        # an empty variable is usually a secret that failed to arrive
        if value == "":
            raise ValueError("got an empty value: give one, or leave it out")
        return value

    @field_validator("versions")
    @classmethod
    def _check_versions(cls, value: str) -> str:
        if value not in ("latest", "all") and not re.fullmatch(r"[1-9]\d{0,9}(,[1-9]\d{0,9})*", value):
            raise ValueError(f"expected latest, all, or version numbers such as 1,3, got {value!r}")
        return value

    @field_validator("worker_seconds")
    @classmethod
    def _check_worker_seconds(cls, value: float) -> float:
        if 0 < value < MIN_WORKER_SECONDS:
            raise ValueError(f"expected 0, or at least {MIN_WORKER_SECONDS} second, got {value:g}")
        return value

    @field_validator("models", mode="before")
    @classmethod
    def _parse_models(cls, value: Any) -> Any:
        """A string is the address of a remote repository, and anything else a path."""
        return Path(value) if isinstance(value, str) and value and not is_address(value) else value

    @field_validator("models")
    @classmethod
    def _check_models(cls, value: Path | str | None) -> Path | str | None:
        """Check an address. `resolve` checks a path: what it may name is the repository's business."""
        return check_address(value) if isinstance(value, str) else value

    @field_validator(*FILE_SETTINGS)
    @classmethod
    def _check_file(cls, value: Path | None) -> Path | None:
        if value is not None and (value.is_dir() or not os.access(value, os.R_OK)):
            raise ValueError(f"expected a file that can be read, got {str(value)!r}")
        return value

    @field_validator("cors")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ValueError(f"expected origins such as https://example.org, or *, got {origin!r}")
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _check_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not ALLOWED_HOST.fullmatch(host):
                raise ValueError(f"expected hosts such as example.org, *.example.org or *, got {host!r}")
        return value

    @field_validator("otlp")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://\S+", value):
            raise ValueError(f"expected an address such as http://127.0.0.1:4318, got {value!r}")
        return value

    @field_validator("payload_events")
    @classmethod
    def _check_receiver(cls, value: str | None) -> str | None:
        match = RECEIVER.fullmatch(value or "http://broker.example")
        if match is None or int(match[1] or 0) > MAX_PORT:
            # not repeated, as it may have a password
            raise ValueError(
                "expected an address such as http://broker.example/path without a user, got another"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _poll_stores_seldom(cls, values: Any) -> Any:
        """Set another default of `poll` for a remote repository."""
        if (
            isinstance(values, dict)
            and isinstance(models := values.get("models"), str)
            and is_address(models)
        ):
            return {"poll": REMOTE_POLL_SECONDS, **values}
        return values

    @model_validator(mode="after")
    def _check_combinations(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            present, missing = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise ValueError(f"{missing}: expected a file, as {present} is given, got none: HTTPS needs both")
        if self.grpc_port and self.grpc_port == self.port:
            raise ValueError(f"--grpc-port: expected another port than --port, got {self.port} for both")
        if self.engine == "ray":
            self._check_ray()
        if self.app is not None:
            self._check_app()
        if self.precision != "fp32" and self.device != "openvino":
            raise ValueError(
                f"--precision: expected fp32 with --device {self.device}, got {self.precision}, "
                "which needs --device openvino"
            )
        if self.payload_events is None and self.payload_mode != "all":
            raise ValueError(
                f"--payload-mode: expected none without --payload-events, got {self.payload_mode}"
            )
        if self.max_held < self.max_body:
            raise ValueError(
                f"--max-held: expected at least the {self.max_body} bytes of --max-body, got {self.max_held}"
            )
        for key, file in (("api_keys", "api_keys_file"), ("admin_key", "admin_key_file")):
            if getattr(self, key) and getattr(self, file):
                option, variable = f"--{file.replace('_', '-')}", f"{PREFIX}{key.upper()}"
                raise ValueError(f"{option}: expected one source, and {variable} is set too")
        return self

    def _check_app(self) -> None:
        module, _, name = str(self.app).partition(":")
        if not re.fullmatch(r"[\w.]+:[\w.]+", str(self.app)) or module.endswith(".py"):
            meant = f"{module.removesuffix('.py').strip('./').replace('/', '.')}:{name or 'app'}"
            raise ValueError(
                f"--app: expected MODULE:NAME, such as my_app:app, got {self.app!r}; did you mean {meant}?"
            )
        if self.grpc_port is not None:
            raise ValueError("--grpc-port: expected none with --app, as an application gets no calls of gRPC")
        if self.engine == "ray":
            raise ValueError("--engine: expected local with --app, got ray")

    def _check_ray(self) -> None:
        """Refuse what Ray cannot do, and what contradicts itself."""
        if self.tls_cert is not None:
            raise ValueError("--tls-cert: expected none with --engine ray: put a proxy with HTTPS before it")
        if self.grpc_port is not None:
            raise ValueError("--grpc-port: expected none with --engine ray, whose proxies speak HTTP")
        if self.workers != 1:
            raise ValueError(
                f"--workers: expected 1 with --engine ray, got {self.workers}; "
                "--max-replicas is the number of workers on Ray"
            )
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"--min-replicas: expected at most the {self.max_replicas} of --max-replicas, "
                f"got {self.min_replicas}"
            )
        if self.replica_gpus > 1 and self.replica_gpus % 1:
            raise ValueError(
                f"--replica-gpus: expected a fraction of one GPU, or whole ones, got {self.replica_gpus:g}"
            )
        if (self.device == "cuda") != (self.replica_gpus > 0):
            raise ValueError(
                "--replica-gpus: expected more than 0 with --device cuda and 0 with others, "
                f"got {self.replica_gpus:g} with {self.device}"
            )


def is_address(text: str) -> bool:
    """Whether this is meant as the address of a remote repository, and not as a path."""
    return "://" in text


def check_address(text: str) -> str:
    """The address without slashes at its end.

    Raises:
        ValueError: It is no address, or has a password, which the log would show.
    """
    if PASSWORD.search(text):
        raise ValueError(
            "expected an address without a password: set it as the library of the store documents, "
            "for example in a variable"
        )
    address = text.rstrip("/")
    if not ADDRESS.fullmatch(address) or "::" in address:
        raise ValueError(f"expected an address such as s3://bucket/models, got {text!r}")
    return address
