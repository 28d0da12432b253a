"""`--workers auto`: settings that were measured on this machine, or a guess from weights and CPUs."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.onnx_with_weights import model_with_weights
from turnpike.service.cli import serve
from turnpike.service.config import auto_workers
from turnpike.service.config.auto_workers import MIN_WEIGHT_BYTES, TUNED_FILE, median_weight_size
from turnpike.service.config.cpus import LARGE_WEIGHT_BYTES, default_workers
from turnpike.service.config.resolve import ResolvedSettings, resolve, settings_as_toml
from turnpike.service.config.settings import Settings
from turnpike.service.repository.scan import MODEL_FILE

MACHINE = {"cpus": 4.0, "cpu": "Some CPU", "device": "cpu"}
TUNED = "workers = 3\nthreads = 1\nmax_batch = 32\nmax_delay_ms = 0.5\n"
MEASURED = '[measured]\ncpus = 4\ncpu = "Some CPU"\ndevice = "cpu"\ndate = "2026-01-01"\n'
# values in an initializer of the smallest size that counts as a weight
MIN_WEIGHT_VALUES = MIN_WEIGHT_BYTES // 4


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, without_variables: None) -> None:
    """A machine with four CPUs, and an environment without our variables."""
    monkeypatch.setattr(auto_workers, "available_cpus", lambda: MACHINE["cpus"])
    monkeypatch.setattr(auto_workers, "cpu_model", lambda: MACHINE["cpu"])


def resolve_auto(models: Path, tuned: str | None = TUNED + MEASURED, **flags: Any) -> ResolvedSettings:
    """Resolve `--workers auto` for a repository with this tuned file."""
    if tuned is not None:
        (models / TUNED_FILE).write_text(tuned)
    return resolve({"models": str(models), "workers": "auto", **flags})


def weight_size(tmp_path: Path, content: bytes) -> int:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return median_weight_size(path)


def test_a_tuned_file_of_this_machine_is_used(tmp_path: Path) -> None:
    """All four settings are used, and the origin of each is the file."""
    resolved = resolve_auto(tmp_path)
    settings = resolved.settings
    assert (settings.workers, settings.threads, settings.max_batch, settings.max_delay_ms) == (3, 1, 32, 0.5)
    assert resolved.warning == ""
    file = tmp_path / TUNED_FILE
    assert resolved.origins["workers"] == f"--workers auto: {file}"
    assert resolved.origins["max_batch"] == str(file)
    text = settings_as_toml(resolved)
    assert f"workers = 3  # --workers auto: {file}\n" in text
    assert tomllib.loads(text)["workers"] == 3


def test_other_sources_override_the_tuned_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag, a variable or the file of --config overrides the tuned value of its own setting."""
    monkeypatch.setenv("TURNPIKE_MAX_DELAY_MS", "7")
    config = tmp_path / "serve.toml"
    config.write_text(f'workers = "auto"\nthreads = 2\nmodels = "{tmp_path}"\n')
    (tmp_path / TUNED_FILE).write_text(TUNED + MEASURED)
    resolved = resolve({"max_batch": "16"}, config)
    settings = resolved.settings
    assert (settings.workers, settings.threads, settings.max_batch, settings.max_delay_ms) == (3, 2, 16, 7)
    assert resolved.origins["max_batch"] == "--max-batch"
    assert resolved.origins["workers"].startswith(f"{config}: workers auto: ")


def test_a_tuned_file_is_ignored_without_auto(tmp_path: Path) -> None:
    (tmp_path / TUNED_FILE).write_text(TUNED + MEASURED)
    assert resolve({"models": str(tmp_path)}).settings == Settings(models=tmp_path)
    assert resolve({"models": str(tmp_path), "workers": "2"}).settings.max_batch == 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = ", "expected TOML, got something else"),
        ("\udcff", "expected TOML, got something else"),
        (TUNED, "expected a table [measured] that describes the machine, got none"),
        ("measured = 1\n" + TUNED, "expected a table [measured] that describes the machine, got none"),
        (TUNED + MEASURED.replace("4", "8"), "with cpus = 4.0, got 8"),
        (TUNED + MEASURED.replace("Some", "Other"), "with cpu = 'Some CPU', got 'Other CPU'"),
        (TUNED + MEASURED.replace('"cpu"', '"cuda"'), "with device = 'cpu', got 'cuda'"),
        (TUNED + "[measured]\n", "with cpus = 4.0, got None"),
        (
            'host = "0.0.0.0"\n' + TUNED + MEASURED,
            "expected workers, threads, max_batch, max_delay_ms, got host,",
        ),
        (MEASURED, "expected workers, threads, max_batch, max_delay_ms, got nothing"),
        (TUNED.replace("= 3\n", "= true\n") + MEASURED, "expected numbers, got"),
        (TUNED.replace("= 3\n", "= '3'\n") + MEASURED, "expected numbers, got"),
        (
            TUNED.replace("= 3\n", "= 1000\n") + MEASURED,
            "workers: expected a number that serve accepts, got 1000",
        ),
        (
            TUNED.replace("0.5", "nan") + MEASURED,
            "max_delay_ms: expected a number that serve accepts, got nan",
        ),
    ],
)
def test_an_unusable_file_is_reported_and_ignored(tmp_path: Path, text: str, message: str) -> None:
    """It is damaged, was measured elsewhere, or has settings that were not measured."""
    (tmp_path / TUNED_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    resolved = resolve_auto(tmp_path, None)
    assert resolved.settings == Settings(models=tmp_path, workers=4)
    assert resolved.warning.startswith(f"--workers auto ignores {tmp_path / TUNED_FILE}: ")
    assert message in resolved.warning
    assert resolved.origins["workers"].startswith("--workers auto: usual for 4 CPUs and ")


def test_a_tuned_file_that_is_a_pipe_is_ignored(tmp_path: Path) -> None:
    """Opening a pipe would block the start."""
    os.mkfifo(tmp_path / TUNED_FILE)
    assert "expected a file, got something else" in resolve_auto(tmp_path, None).warning


def test_a_tuned_file_of_another_device_is_ignored(tmp_path: Path) -> None:
    """Settings measured on the CPU do not apply to a GPU. The guess for a GPU is one worker."""
    resolved = resolve_auto(tmp_path, device="cuda")
    assert resolved.settings.workers == 1
    assert "with device = 'cuda', got 'cpu'" in resolved.warning


def test_a_tuned_file_of_another_precision_is_ignored(tmp_path: Path) -> None:
    """Runs in bf16 take a fraction of the time, so other settings are best. Older files are for fp32."""
    in_bf16 = MEASURED.replace('"cpu"', '"openvino"').replace("date", 'precision = "bf16"\ndate')
    options = {"device": "openvino", "precision": "bf16"}
    assert resolve_auto(tmp_path, TUNED + in_bf16, **options).settings.max_batch == 32
    resolved = resolve_auto(tmp_path, TUNED + in_bf16, device="openvino")
    assert "with precision = 'fp32', got 'bf16'" in resolved.warning
    older = MEASURED.replace('"cpu"', '"openvino"')
    assert resolve_auto(tmp_path, TUNED + older, device="openvino").warning == ""
    assert "with precision = 'bf16', got 'fp32'" in resolve_auto(tmp_path, TUNED + older, **options).warning


@pytest.mark.parametrize(
    ("cpus", "weight", "expected"),
    [
        (2.0, 1000, 2),
        (2.0, LARGE_WEIGHT_BYTES, 2),
        (2.0, LARGE_WEIGHT_BYTES + 1, 1),
        (0.5, 1000, 1),
        (2.9, 1000, 2),
        (3.0, LARGE_WEIGHT_BYTES + 1, 1),
        (8.0, LARGE_WEIGHT_BYTES + 1, 2),
        (16.0, 1000, 16),
    ],
)
def test_the_default_number_of_workers_depends_on_cpus_and_weights(
    cpus: float, weight: int, expected: int
) -> None:
    """One worker per CPU for models with small weights, one per four CPUs for models with large ones."""
    assert default_workers(cpus, weight) == expected


def test_the_largest_served_model_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions that are not served do not count; the weights of the bundled model are small."""
    for version, width in (("1", 1024), ("2", 64)):
        path = tmp_path / "net" / version / MODEL_FILE
        path.parent.mkdir(parents=True)
        path.write_bytes(model_with_weights({"w": (width, width)}))
    assert resolve_auto(tmp_path, None).origins["workers"].endswith("usual for 4 CPUs and small weights")
    assert resolve_auto(tmp_path, None, versions="all").origins["workers"].endswith("and weights of 4.2 MB")
    assert resolve_auto(tmp_path, None).settings.workers == 4
    assert resolve_auto(tmp_path, None, versions="all").settings.workers == 1
    assert resolve({"workers": "auto"}).settings.workers == 4
    monkeypatch.setattr(auto_workers, "available_cpus", lambda: 1000.0)
    assert resolve({"workers": "auto"}).settings.workers == 256


def test_a_remote_model_decides_too(tmp_path: Path) -> None:
    """Its file is downloaded to the cache, where the service finds it."""
    path = tmp_path / "store/net/1" / MODEL_FILE
    path.parent.mkdir(parents=True)
    path.write_bytes(model_with_weights({"w": (1024, 1024)}))
    flags = {"workers": "auto", "model_cache": str(tmp_path / "cache")}
    resolved = resolve(flags, models=f"file://{tmp_path}/store")
    assert resolved.origins["workers"].endswith("usual for 4 CPUs and weights of 4.2 MB")


def test_the_threads_setting_limits_the_workers(tmp_path: Path) -> None:
    """There are no more workers than there are CPUs for their threads."""
    settings = resolve_auto(tmp_path, None, threads="2").settings
    assert (settings.workers, settings.threads) == (2, 2)
    assert resolve_auto(tmp_path, None, threads="9").settings.workers == 1


def test_a_tuned_file_can_be_given_as_config(tmp_path: Path) -> None:
    """Its table with facts about the machine is ignored then."""
    file = tmp_path / "tuned.toml"
    file.write_text(TUNED + MEASURED.replace("4", "8"))
    assert resolve({}, file).settings == Settings(workers=3, threads=1, max_batch=32, max_delay_ms=0.5)


def test_an_ignored_file_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line, and the service starts with the guess."""
    served: list[Settings] = []

    def supervise(settings: Settings, make_app: object) -> int:
        served.append(settings)
        return 0

    monkeypatch.setattr(serve, "supervise", supervise)
    monkeypatch.setattr(serve, "configure_logging", lambda level: None)
    (tmp_path / TUNED_FILE).write_text("nothing")
    assert CliRunner().invoke(serve.app, ["--models", str(tmp_path), "--workers", "auto"]).exit_code == 0
    assert [settings.workers for settings in served] == [4]
    (record,) = caplog.records
    assert record.message.startswith("--workers auto ignores")


def test_the_median_weight_is_measured(tmp_path: Path) -> None:
    """Biases and one large embedding do not change it. Name and header of a weight add a few bytes."""
    shapes = {"a": (256, 256), "b": (512, 256), "words": (9000, 256), "bias": (256,)}
    assert 0 <= weight_size(tmp_path, model_with_weights(shapes)) - 512 * 256 * 4 < 64


def test_weights_are_measured_in_bytes(tmp_path: Path) -> None:
    """Weights in int8 are a quarter of the size."""
    assert 0 <= weight_size(tmp_path, model_with_weights({"a": (512, 512)}, np.int8)) - 512 * 512 < 64


def test_small_weights_do_not_count(tmp_path: Path) -> None:
    assert weight_size(tmp_path, model_with_weights({"a": (MIN_WEIGHT_VALUES - 64,)})) == 0
    assert weight_size(tmp_path, model_with_weights({"a": (MIN_WEIGHT_VALUES,)})) >= MIN_WEIGHT_BYTES
    assert weight_size(tmp_path, model_with_weights({})) == 0


def test_missing_and_invalid_files_have_no_weights(tmp_path: Path) -> None:
    """Loading the file reports what is wrong. A file of zeros is not read to its end."""
    assert median_weight_size(tmp_path / "missing.onnx") == 0
    assert median_weight_size(tmp_path) == 0
    for content in (b"", b"\x00", b"not a model", b"\xff" * 64, b"\x3a\xff\xff\xff\xff\x0f", b"\x3b\x01"):
        assert weight_size(tmp_path, content) == 0
    sparse_file = tmp_path / "model.onnx"
    with sparse_file.open("wb") as file:
        file.truncate(1 << 40)
    assert median_weight_size(sparse_file) == 0


@pytest.mark.parametrize("seed", range(3))
def test_the_weights_of_damaged_models_are_estimated(tmp_path: Path, seed: int) -> None:
    """A file that is cut anywhere, or with changed bytes, gives a number, and quickly."""
    whole = model_with_weights({"a": (128, 128), "b": (128, 128)})
    random = np.random.default_rng(seed)
    for _ in range(100):
        content = bytearray(whole[: int(random.integers(len(whole)))])
        for position in random.integers(min(len(content), 200) or 1, size=3):
            content[int(position) : int(position) + 1] = bytes([int(random.integers(256))])
        assert 0 <= weight_size(tmp_path, bytes(content)) <= len(whole)
