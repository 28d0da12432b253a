"""What `turnpike serve` may be given, from a run down to a file, and errors that name what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.tiny_repository import put_model
from turnpike.service.config.resolve import resolve
from turnpike.service.errors import SettingError
from turnpike.service.repository.location import Location, locate
from turnpike.service.repository.scan import MODEL_FILE


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was exported: two models, one of them in two versions."""
    run = tmp_path / "runs" / "demo"
    for name, version in (("net", 1), ("net", 2), ("other", 1)):
        put_model(run / "repository", name, version, b"content")
    (run / "model.safetensors").touch()
    return run


def served(path: Path) -> list[str]:
    models = locate(path).scan().models.values()
    return [f"{file.name}/{file.version}" for files in models for file in files]


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("", ["net/1", "net/2", "other/1"]),
        ("repository", ["net/1", "net/2", "other/1"]),
        ("repository/net", ["net/1", "net/2"]),
        ("repository/net/2", ["net/2"]),
        ("repository/net/1/model.onnx", ["net/1"]),
    ],
)
def test_runs_repositories_models_versions_and_files_are_served(
    run: Path, monkeypatch: pytest.MonkeyPatch, place: str, names: list[str]
) -> None:
    """The same from the folder itself, where the path may be `.`."""
    assert served(run / place) == names
    inside = run / place
    if inside.is_dir():
        monkeypatch.chdir(inside)
        assert served(Path()) == names


def test_a_file_elsewhere_is_served_under_its_own_name(tmp_path: Path) -> None:
    """A file called model.onnx has the name of its folder."""
    for path in (tmp_path / "wine.onnx", tmp_path / "beer" / MODEL_FILE):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    assert served(tmp_path / "wine.onnx") == ["wine/1"]
    assert served(tmp_path / "beer" / MODEL_FILE) == served(tmp_path / "beer") == ["beer/1"]
    location = locate(tmp_path / "wine.onnx")
    (tmp_path / "wine.onnx").unlink()
    with pytest.raises(SettingError, match="expected a file that can be read"):
        location.scan()


def test_an_address_is_refused_where_a_path_is_expected() -> None:
    """A path keeps only one of its slashes."""
    with pytest.raises(SettingError, match="only `turnpike serve` reads remote repositories"):
        locate(Path("s3://bucket/models"))


def test_models_may_arrive_later(tmp_path: Path) -> None:
    """An empty folder is a repository, and so is one with a version whose file is still missing."""
    assert locate(tmp_path) == Location(tmp_path)
    (tmp_path / "net" / "1").mkdir(parents=True)
    assert locate(tmp_path) == Location(tmp_path)
    assert served(tmp_path) == []


def test_a_run_that_was_not_exported_gets_the_line_that_exports_it(run: Path) -> None:
    fresh = run.with_name("fresh")
    fresh.mkdir()
    (fresh / "model.safetensors").touch()
    for path in (fresh, fresh / "model.safetensors"):
        with pytest.raises(SettingError) as error:
            locate(path)
        line = f"turnpike export {fresh} --to {fresh}/repository"
        assert str(error.value).endswith(f"which was trained and not exported: {line}")


def test_a_folder_above_is_refused_with_the_folder_that_was_meant(run: Path) -> None:
    (run.parent / "net.onnx").touch()
    (run.parent / "notes").mkdir()
    with pytest.raises(SettingError) as error:
        locate(run.parent)
    assert str(error.value) == (
        f"expected a folder of models, got {str(run.parent)!r}, which has none of its own; "
        f"did you mean {run} or {run.parent / 'net.onnx'}?"
    )


def test_what_was_meant_is_found_three_folders_below_at_most(run: Path) -> None:
    top, folder = run.parents[1], run.parents[1] / "a"
    folder.mkdir()
    moved = run.parent.rename(folder / "runs") / "demo"
    with pytest.raises(SettingError, match=f"did you mean {moved}[?]$"):
        locate(top)
    (top / "above").mkdir()
    folder.rename(top / "above" / "a")
    assert locate(top) == Location(top)


def test_what_cannot_become_a_model_is_named(tmp_path: Path) -> None:
    for name in ("notes", "empty", "net", "lost+found", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes" / "a.md").touch()
    (tmp_path / "net" / "3").mkdir()
    (tmp_path / "README.md").touch()
    assert locate(tmp_path).other_entries() == ["README.md", "notes"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(SettingError, match=r"a folder of models or an \.onnx file, got '.*a\.txt'"):
        locate(tmp_path / "a.txt")
    with pytest.raises(SettingError, match="got '.*gone': there is nothing of that name"):
        locate(tmp_path / "gone")


@pytest.mark.usefixtures("without_variables")
def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """Rather than waited for: nobody would know why nothing is served."""
    (tmp_path / "notmodel.onnx").write_bytes(b"junk")
    message = "--models: expected an .onnx file, got '.*notmodel.onnx': its file is damaged"
    with pytest.raises(SettingError, match=message):
        resolve({"models": str(tmp_path / "notmodel.onnx")})


@pytest.mark.usefixtures("without_variables")
def test_an_empty_folder_as_the_argument_is_refused(tmp_path: Path) -> None:
    """It is waited for if an option or a variable names it, as that of a container does."""
    with pytest.raises(
        SettingError, match="MODELS: expected a model, got the empty folder .* with --models "
    ):
        resolve({}, models=str(tmp_path))
    assert resolve({"models": str(tmp_path)}).settings.models == tmp_path
    (tmp_path / "net").mkdir()
    assert resolve({}, models=str(tmp_path)).settings.models == tmp_path


@pytest.mark.usefixtures("without_variables")
def test_models_are_given_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The argument of the command line is named in errors, and comes before variables."""
    assert resolve({}, models=str(run)).settings.models == run
    with pytest.raises(SettingError, match="^MODELS: expected a folder of models"):
        resolve({}, models="/absent")
    with pytest.raises(SettingError, match="^MODELS: expected one place, got 'a' and --models 'b'"):
        resolve({"models": "b"}, models="a")
