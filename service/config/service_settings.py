"""The settings of a service in an application of somebody else, for `create_app` and `router`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypedDict


class ServiceSettings(TypedDict, total=False):
    """The settings that do not belong to the server. docs/reference/command-line.md explains them."""

    versions: str
    poll: float
    model_cache: str | Path | None
    weights_cache: int
    store_seconds: float
    allow_unverified: bool
    trial_seconds: float
    check_parity: bool
    cors: tuple[str, ...]
    allowed_hosts: tuple[str, ...]
    threads: int
    device: Literal["cpu", "cuda", "openvino"]
    precision: Literal["fp32", "bf16"]
    max_batch: int
    max_delay_ms: float
    exact: bool
    queue: int
    timeout_ms: int
    max_body: int
    max_inflate_ratio: int
    max_json: int
    max_held: int
    max_rows: int
    max_depth: int
    max_gates: int
    body_seconds: float
    api_keys_file: str | Path | None
    api_keys: tuple[str, ...]
    admin_key_file: str | Path | None
    admin_key: str | None
    access_log: bool
    dashboard: bool
    docs: bool
    drift_rows: int
    old_predict: bool
    otlp: str | None
    payload_events: str | None
    payload_mode: Literal["all", "request", "response"]
