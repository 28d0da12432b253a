"""The documentation matches the code: options, variables, presets, names, commands, links and Python."""

from __future__ import annotations

import enum
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import turnpike
from tests.support.source_files import PACKAGES
from turnpike.cli import load_command
from turnpike.commands import COMMANDS
from turnpike.models.training.presets import PRESETS
from turnpike.service.config.settings import Settings
from turnpike.service.grpc.connection.http2_state import Http2State
from turnpike.service.http.connection.http_state import HttpState

ROOT = Path(__file__).parent.parent
COMMAND_LINE = (ROOT / "docs/reference/command-line.md").read_text(encoding="utf-8")
DOCUMENTS = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "benchmarks/README.md",
            "loadtest/README.md",
            "examples/README.md",
        )
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
]


# of a service, in examples
ADDRESS = "http://127.0.0.1:8000"


def options(name: str) -> dict[str, Any]:
    """The options of a command by flag, without --help."""
    return {
        flag: parameter
        for parameter in load_command(name).params
        for flag in [*parameter.opts, *parameter.secondary_opts]
        if flag.startswith("--") and flag != "--help"
    }


def section(name: str) -> str:
    """The section of docs/reference/command-line.md on a command."""
    match = re.search(rf"^## turnpike {name}\b.*?(?=^## |\Z)", COMMAND_LINE, re.DOTALL | re.MULTILINE)
    assert match, f"docs/reference/command-line.md has no section on turnpike {name}"
    return match[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name: str) -> None:
    """The section of a command lists exactly its options."""
    documented = set(re.findall(r"`(--[a-z-]+)", section(name)))
    real = set(options(name))
    assert real - documented == set()
    assert documented - real == set()


def test_every_variable_is_documented() -> None:
    """The tables list exactly the TURNPIKE_... variables that the code reads."""
    folders = [ROOT / package for package in PACKAGES]
    code = [path for folder in folders for path in folder.rglob("*.py")]
    read = {name for path in code for name in re.findall(r"TURNPIKE_[A-Z]+(?:_[A-Z]+)*", path.read_text())}
    read |= {f"TURNPIKE_{name.upper()}" for name in Settings.model_fields}
    documented = re.findall(r"^\|(?: `--[^|]*\|)?(?: \|)? `(TURNPIKE_[A-Z_]+)`", COMMAND_LINE, re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert read == set(documented)


def test_every_default_of_the_service_is_documented() -> None:
    """The table of `turnpike serve` gives the default of each setting."""
    for name, field in Settings.model_fields.items():
        (row,) = re.findall(rf"^\|.*`TURNPIKE_{name.upper()}` \|(.*)\|$", COMMAND_LINE, re.MULTILINE)
        if isinstance(field.default, bool):
            assert f"({'on' if field.default else 'off'})" in row, name
        elif field.default not in (None, ()):
            assert f"({field.default})" in row.replace(",", ""), name


def test_every_preset_is_documented() -> None:
    """The table lists exactly the presets, each with its family."""
    documented = {}
    for line in (ROOT / "docs/reference/networks.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) == 3 and cells[0].startswith("`"):
            documented |= {name: cells[1].strip("`") for name in re.findall(r"`([^`]+)`", cells[0])}
    assert documented == {name: preset.config.family for name, preset in PRESETS.items()}


def test_every_public_name_is_documented() -> None:
    """docs/reference/python-api.md lists exactly what can be imported from `turnpike`."""
    text = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    # the second column of the last table has names, too
    words = [word for first, second in cells for word in re.findall(r"`(\w+)", first + second)]
    documented = set(re.findall(r"`(\w+)", "".join(first for first, _ in cells)))
    documented |= {word for word in words if word.endswith("Config")}
    assert documented == set(turnpike.__all__)


def shell_lines() -> list[tuple[str, str]]:
    """Each indented line or first cell of the documentation that calls turnpike, with its page."""
    commands = re.compile(r"^    (turnpike .*)|^\| `(turnpike [^`]*)`(?:, `(turnpike [^`]*)`)?", re.MULTILINE)
    return [
        (path.name, command)
        for path in DOCUMENTS
        for match in commands.finditer(path.read_text(encoding="utf-8"))
        for command in match.groups()
        if command
    ]


def test_the_docs_have_commands_to_check() -> None:
    """Otherwise the next test would pass without checking anything."""
    assert len(shell_lines()) >= 5


@pytest.mark.parametrize(("document", "line"), shell_lines())
def test_commands_in_the_docs_exist(document: str, line: str) -> None:
    """Every command, preset and option in the documentation exists."""
    _, name, *arguments = shlex.split(line)
    if name == "--help":
        return
    assert name in COMMANDS
    known = {*options(name), "--help"}
    for argument in arguments:
        if argument.startswith("--"):
            assert argument in known
    if name == "train" and arguments and not arguments[0].startswith("--"):
        assert arguments[0] in PRESETS


# pages whose Python code needs a client or a server: tests/system/test_grpc_page.py runs it
PAGES_WITH_CLIENTS = {"grpc.md"}


def python_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{path.name}-{number}")
        for path in DOCUMENTS
        if path.name not in PAGES_WITH_CLIENTS
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL))
    ]


@pytest.mark.usefixtures("without_variables")
@pytest.mark.parametrize("block", python_blocks())
def test_python_code_in_the_docs_runs(block: str, request: pytest.FixtureRequest) -> None:
    """The Python code of the documentation runs unchanged. At its address is the bundled model."""
    if ADDRESS in block:
        block = block.replace(ADDRESS, request.getfixturevalue("bundled_server").url)
    exec(compile(block, "document", "exec"), {})


def links(path: Path) -> list[tuple[str, str]]:
    """Target and anchor of each link and picture."""
    return re.findall(r"\]\(([^)#]*)(#[^)]*)?\)", path.read_text(encoding="utf-8"))


def test_the_docs_have_links_to_check() -> None:
    """Otherwise the next test would pass without checking anything."""
    found = [link for path in DOCUMENTS for link in links(path)]
    assert len([target for target, _ in found if target and "://" not in target]) > 50
    assert len([anchor for _, anchor in found if anchor]) > 10


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_have_existing_targets(path: Path) -> None:
    """Every relative link and picture is a file of the repository, and every anchor a heading of its page."""
    for target, anchor in links(path):
        if "://" in target:
            continue
        page = path.parent / target if target else path
        assert page.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor[1:] in anchors, target + anchor


def folders_with_code() -> set[str]:
    """The top-level folders whose files documents name."""
    return {path.parent.name for path in ROOT.glob("*/__init__.py")} | {"deploy", "docs", "examples"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_and_modules_in_the_docs_exist(path: Path) -> None:
    """Paths from the root of the repository, and modules that a shown command runs."""
    text = path.read_text(encoding="utf-8")
    # a profile names the functions of the version that was measured
    text = re.sub(r"<!-- profile -->.*<!-- end of profile -->", "", text, flags=re.DOTALL)
    folders = "|".join(folders_with_code())
    for name in re.findall(rf"(?<![\w./-])(?:{folders})/[\w./-]*\w", text):
        assert (ROOT / name).exists() or (path.parent / name).exists(), name
    for module in re.findall(rf"python -m ((?:{folders})[\w.]*)", text):
        file = ROOT / module.replace(".", "/")
        assert file.with_suffix(".py").exists() or (file / "__main__.py").exists(), module


def test_the_architecture_page_names_existing_files_and_folders() -> None:
    """Its files are in a package, and its tables list exactly the folders of the service and of the gates."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    files = re.findall(r"`([\w/]+\.py)`", text)
    assert len(files) > 10
    for name in files:
        assert any((ROOT / folder / name).exists() for folder in ("", "service", "export")), name
    folders = {path.parent for path in (ROOT / "service").rglob("__init__.py")} - {ROOT / "service"}
    names = {str(folder.relative_to(ROOT / "service")) for folder in folders} | {"dashboard", "default"}
    gates = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "export/gates").rglob("__init__.py")}
    assert set(re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)) == names | gates


@pytest.mark.parametrize(("states", "first"), [(HttpState, "NEW"), (Http2State, "PREFACE")])
def test_the_diagrams_of_states_have_every_state(states: type[enum.IntEnum], first: str) -> None:
    """Arrows only lead to later states, apart from those between requests of HTTP/1.1."""
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    (diagram,) = re.findall(
        rf"```mermaid\nstateDiagram-v2\n    \[\*\] --> {first}\n(.*?)```", text, re.DOTALL
    )
    arrows = [(states[start], states[end]) for start, end in re.findall(r"(\w+) --> (\w+): ", diagram)]
    assert {state for arrow in arrows for state in arrow} == set(states)
    back = {(start.name, end.name) for start, end in arrows if start > end}
    assert back == ({("BODY", "READY")} if states is HttpState else set())


def test_no_registry_host_is_in_the_repository() -> None:
    """No tracked text names the host of a package registry, and the constraints hold only versions."""
    hosts = re.compile(
        r"(pypi|pythonhosted|registry\.npmjs|download\.pytorch|deb\.debian)\.[a-z]", re.IGNORECASE
    )
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".png", ".safetensors"} or name == "tests/test_docs.py" or not path.is_file():
            continue
        assert not hosts.search(path.read_text(encoding="utf-8", errors="replace")), name
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line
