"""`--scale`: the mean and the standard deviation of the rows, from an .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from turnpike.export.errors import SourceError, UsageError
from turnpike.export.pipeline import export_model
from turnpike.export.verify import verify_model
from turnpike.service.artifact.runtime import open_model

MEAN, STD = np.array([1.0, 20.0, 300.0]), np.array([0.5, 10.0, 200.0])


def write(folder: Path, **arrays: Any) -> Path:
    path = folder / "stats.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("name", ["std", "scale"])
def test_rows_are_standardized_in_the_file(tmp_path: Path, name: str) -> None:
    stats = write(tmp_path, mean=MEAN, **{name: STD})
    torch.manual_seed(0)
    module = nn.Linear(3, 2).eval()
    inputs = ["x:float32[batch,3]"]
    result = export_model(module, tmp_path / "models", name="net", inputs=inputs, scale=stats)
    assert result.manifest.identity is not None
    assert result.manifest.identity.verdict == "identical"
    rows = np.random.default_rng(0).normal(MEAN, STD, (9, 3))
    (answer,) = open_model(result.path).run({"x": rows.astype(np.float32)}, ["output"])
    with torch.no_grad():
        expected = module(torch.from_numpy((rows - MEAN) / STD).float())
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    verify_model(result.path, module, inputs=inputs, scale=stats)
    with pytest.raises(Exception, match="differ|expected"):
        verify_model(result.path, module, inputs=inputs)


def test_one_number_for_each_channel_of_an_image(tmp_path: Path) -> None:
    stats = write(tmp_path, mean=np.full((3, 1, 1), 0.5), std=np.full((3, 1, 1), 0.25))
    module = nn.Flatten()
    result = export_model(
        nn.Sequential(module, nn.Linear(12, 2)),
        tmp_path,
        name="net",
        inputs=["x:float32[batch,3,2,2]"],
        scale=stats,
    )
    assert "rows are standardized in the file, by stats.npz" in result.notes


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"mean": MEAN}, "expected the arrays mean and std, got mean"),
        ({"mean": MEAN, "std": STD, "scale": STD}, "expected the arrays mean and std, got mean, scale, std"),
        ({"mean": MEAN[:2], "std": STD}, r"mean: expected a number for each value of a row .* shape \(2\)"),
        ({"mean": MEAN, "std": STD * [0, 1, 1]}, "std: expected numbers above 0, got 0"),
        ({"mean": MEAN * np.nan, "std": STD}, "mean: expected finite numbers"),
        ({"mean": MEAN.astype(object), "std": STD}, "cannot read it"),
        ({"mean": np.array(["a", "b", "c"]), "std": STD}, "mean: expected finite numbers, got others or <U1"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], reason: str) -> None:
    stats = write(tmp_path, **arrays)
    with pytest.raises(SourceError, match=rf"--scale: .*{reason}"):
        export_model(nn.Linear(3, 2), tmp_path / "models", inputs=["x:float32[batch,3]"], scale=stats)
    assert not (tmp_path / "models").exists()


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "stats.npz"
    path.write_bytes(b"\x80\x04N.")
    with pytest.raises(SourceError, match=r"--scale: .*expected an \.npz file of numbers"):
        export_model(nn.Linear(3, 2), tmp_path / "models", inputs=["x:float32[batch,3]"], scale=path)


def test_scale_and_preprocess_exclude_each_other(tmp_path: Path) -> None:
    stats = write(tmp_path, mean=MEAN, std=STD)
    with pytest.raises(UsageError, match="give one"):
        export_model(
            nn.Linear(3, 2), tmp_path, inputs=["x:float32[batch,3]"], scale=stats, preprocess=object()
        )
