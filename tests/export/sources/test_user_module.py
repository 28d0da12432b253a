"""A user's own module: their imports are theirs, ours stay ours, and what goes wrong is one line."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import export
import models
import models.layers.gate
import service.artifact.manifest
from export.errors import RequestError, SourceError
from export.input_spec import InputSpec, parse_inputs
from export.sources.user_module import read_factory

INPUTS = parse_inputs(["x:float32[batch,4]"])

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.layer = nn.Linear(4, size)
    def forward(self, x, scale=1.0):
        return self.layer(x) * scale

class Needy(Net):
    def __init__(self, size):
        super().__init__(size)

class Two(Net):
    def forward(self, x, y, *, loud=False):
        return x + y

class Keyword(Net):
    def forward(self, x, *, loud):
        return x

class Any(Net):
    def forward(self, *args):
        return sum(args)

def make():
    return Net().train()

net = Net()
number = 3
def other(): return [1]
def fails():
    return 1 / 0
def leaves():
    raise SystemExit("goodbye")
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    """Files by their paths without .py; the folder."""
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return written(tmp_path, {"net": NET}) / "net.py"


@pytest.mark.parametrize("factory", ["make", "Net", "net"])
def test_a_factory_is_a_function_a_class_or_a_module(net: Path, factory: str) -> None:
    """Each gives the module, in eval mode whatever mode it was left in."""
    found = read_factory(f"{net}:{factory}", INPUTS)
    assert found.module is not None
    assert not any(part.training for part in found.module.modules())
    assert found.module(torch.ones(2, 4)).shape == (2, 4)
    assert (found.name, found.kind, found.inputs) == ("net", "module", INPUTS)


def test_weights_are_filled_in(net: Path, tmp_path: Path) -> None:
    """Those of the file, not those that the factory drew."""
    wanted = {"layer.weight": torch.eye(4), "layer.bias": torch.zeros(4)}
    save_file(wanted, tmp_path / "w.safetensors")
    found = read_factory(f"{net}:make", INPUTS, tmp_path / "w.safetensors")
    assert found.module is not None
    assert torch.equal(found.module(torch.ones(1, 4)), torch.ones(1, 4))
    save_file({"layer.weight": torch.eye(4)}, tmp_path / "w.safetensors")
    with pytest.raises(SourceError, match="w.safetensors: expected a tensor 'layer.bias', which is missing"):
        read_factory(f"{net}:make", INPUTS, tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("absent", "net.py: has no 'absent', only Net, Needy"),
        ("number", "net.py:number: expected a function or a class, got int"),
        ("other", "net.py:other: expected a torch.nn.Module, got list"),
        ("Needy", "net.py:Needy: expected something that can be called without arguments, and it needs size"),
        ("fails", "net.py:35: ZeroDivisionError: division by zero$"),
        ("leaves", "net.py:37: SystemExit: goodbye$"),
    ],
)
def test_what_goes_wrong_in_their_code_is_one_line(net: Path, factory: str, says: str) -> None:
    """With the file, the line and the exception."""
    with pytest.raises(SourceError, match=says):
        read_factory(f"{net}:{factory}", INPUTS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def make(:\n", "net.py:1: SyntaxError: "),
        (
            "import torch\nimport absent_library\n",
            "net.py:2: ModuleNotFoundError: No module named 'absent_lib",
        ),
        ("from inner import boom\n", "inner.py:2: ValueError: boom twice$"),
    ],
)
def test_a_file_that_does_not_load_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    """Also where it is a file that the first one imports."""
    path = written(tmp_path, {"net": text, "inner": "\nraise ValueError('boom\\ntwice')\n"}) / "net.py"
    with pytest.raises(SourceError, match=says):
        read_factory(f"{path}:make", INPUTS)
    assert getattr(sys.modules.get("net"), "__file__", "") != str(path)


def test_ctrl_c_in_their_code_is_ctrl_c(tmp_path: Path) -> None:
    """It stops us, as it should."""
    path = written(tmp_path, {"net": "raise KeyboardInterrupt"}) / "net.py"
    with pytest.raises(KeyboardInterrupt):
        read_factory(f"{path}:make", INPUTS)


@pytest.mark.parametrize(
    ("factory", "inputs", "says"),
    [
        ("make", [], r"expected one for each argument of forward\(x, scale=1.0\), as in --input x:float32"),
        ("Two", [], "as in --input x:.* --input y:"),
        ("make", ["x:float32[b,4]"] * 3, "expected 1 to 2, one for each .*, got 3"),
        (
            "Two",
            ["x:float32[b,4]"],
            r"expected 2, one for each argument of forward\(x, y, \*, loud=False\), got",
        ),
        ("Keyword", ["x:float32[b,4]"], "cannot be called without the keyword 'loud'"),
    ],
)
def test_inputs_go_with_forwards_arguments(net: Path, factory: str, inputs: list[str], says: str) -> None:
    """Too few, too many and none are said, with an example."""
    given = tuple(InputSpec(f"x{at}", "float32", ("b", 4)) for at in range(len(inputs)))
    with pytest.raises(RequestError, match=says):
        read_factory(f"{net}:{factory}", given)


def test_any_number_of_arguments_is_any_number_of_inputs(net: Path) -> None:
    """*args takes them all."""
    three = parse_inputs([f"x{at}:float32[b,4]" for at in range(3)])
    assert read_factory(f"{net}:Any", three).inputs == three


@pytest.mark.parametrize("text", ["net.py", "net.py:", "net.py:a.b", "net.py:a b"])
def test_the_form_is_said(text: str) -> None:
    """A file and the name of a factory."""
    with pytest.raises(RequestError, match="expected path/to/file.py:factory"):
        read_factory(text, INPUTS)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(SourceError, match="absent.py: no such file"):
        read_factory(f"{tmp_path / 'absent.py'}:make", INPUTS)


THEIRS = {
    "net": "import service.act\nfrom models import Net\ndef make(): return Net()\n",
    "models": (
        "import torch\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.layer = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        import export\n"  # for the first time here
        "        import models\n"
        "        assert isinstance(self, models.Net)\n"  # the very class, not one of a module loaded anew
        "        from service.act import act\n"
        "        import service.late\n"
        "        return act(self.layer(x)) * export.FACTOR + service.late.SHIFT\n"
    ),
    "export": "FACTOR = 2.0\n",
    "service/act": "import torch\nact = torch.sigmoid\n",  # a package without __init__.py
    "service/late": "SHIFT = 0.5\n",
}


def test_modules_called_as_ours_are_theirs_for_them_and_ours_for_us(tmp_path: Path) -> None:
    """Also those that forward imports later, also in a copy, also under torch.export; ours are as before."""
    path = written(tmp_path, THEIRS) / "net.py"
    ours = {
        name: sys.modules[name]
        for name in ("models", "models.layers.gate", "export", "service.artifact.manifest")
    }
    before = sys.path[:], sys.meta_path[:]
    module = read_factory(f"{path}:make", INPUTS).module
    assert module is not None
    x = torch.ones(2, 4)
    expected = torch.sigmoid(module.layer(x)) * 2 + 0.5  # type: ignore[operator]
    assert torch.equal(module(x), expected)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    assert torch.equal(torch.export.export(module, (x,)).module()(x), expected)
    assert {name: sys.modules[name] for name in ours} == ours
    assert "service.act" not in sys.modules
    assert "service.late" not in sys.modules
    assert (sys.path, sys.meta_path) == before
    assert models.layers.gate.__file__ != str(tmp_path / "models.py")
    assert export.__file__ != str(tmp_path / "export.py")
    assert service.artifact.manifest.METADATA_KEY == "turnpike"


def test_two_folders_do_not_share_their_modules(tmp_path: Path) -> None:
    """Each `layers` is its own, whichever was loaded first and whichever is called last."""
    found = []
    for at in (1, 2):
        layers = f"import torch\nclass Net(torch.nn.Module):\n    def forward(self, x): return x * {at}\n"
        lazy = "    def forward(self, x):\n        import layers\n        return layers.Net().forward(x)\n"
        net = f"import torch\nfrom layers import Net\nclass Lazy(torch.nn.Module):\n{lazy}"
        folder = written(tmp_path / str(at), {"net": net, "layers": layers})
        found += [
            (at, read_factory(f"{folder / 'net.py'}:{name}", INPUTS).module) for name in ("Net", "Lazy")
        ]
    for at, module in found:
        assert module is not None
        assert module(torch.ones(1)).item() == at
    sys.modules.pop("layers", None)


def test_a_file_in_a_package_may_import_its_neighbours(tmp_path: Path) -> None:
    """Relative imports work, and the package may be called as one of ours."""
    written(
        tmp_path,
        {
            "models/__init__": "",
            "models/parts/__init__": "",
            "models/parts/net": "from ..parts_of_net import Net\ndef make(): return Net()\n",
            "models/parts_of_net": NET,
        },
    )
    found = read_factory(f"{tmp_path}/models/parts/net.py:make", INPUTS)
    assert found.module is not None
    assert type(found.module).__module__ == "models.parts_of_net"
    assert "models.parts_of_net" not in sys.modules
    assert sys.modules["models"] is models


def test_the_file_may_be_a_package_itself(tmp_path: Path) -> None:
    """Its __init__.py, which imports what lies beside it, as it is now and not as it was."""
    files = {"nets/__init__": "from .layers import Net\nmake = Net\n", "nets/layers": NET}
    spec = f"{written(tmp_path, files)}/nets/__init__.py:make"
    assert isinstance(read_factory(spec, INPUTS).module, nn.Module)
    written(
        tmp_path, {"nets/__init__": "from torch import nn\ndef make(): return nn.Linear(4, 4)  # another\n"}
    )
    assert isinstance(read_factory(spec, INPUTS).module, nn.Linear)
    sys.modules.pop("nets", None)


@pytest.mark.parametrize("name", ["models", "types", "my-net.v2", "torch", "pytest"])
def test_the_file_itself_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Ours, the standard library's, a library's, or none that could be imported."""
    before = sys.modules.get(name)
    (tmp_path / f"{name}.py").write_text(NET)
    module = read_factory(f"{tmp_path / name}.py:make", INPUTS).module
    assert module is not None
    assert type(module).__mro__[1].__name__ == "Net"
    assert sys.modules.get(name) is before


def test_ours_can_still_be_imported_by_them(tmp_path: Path) -> None:
    """A factory may build upon turnpike's own layers where its folder has none of that name."""
    text = "from models.layers.gate import DenseGate\ndef make(): return DenseGate(4, 4)\n"
    (tmp_path / "models").mkdir()  # a folder of weights, say, with no module in it
    module = read_factory(f"{written(tmp_path, {'net': text}) / 'net.py'}:make", INPUTS).module
    assert isinstance(module, models.layers.gate.DenseGate)


def test_what_they_load_first_is_not_ours_later(tmp_path: Path) -> None:
    """In a process that has not loaded `loadtest` yet, theirs does not become ours."""
    folder = written(
        tmp_path,
        {
            "net": "import loadtest, torch\ndef make(): return torch.nn.Linear(loadtest.SIZE, 4)\n",
            "loadtest": "SIZE = 4\n",
        },
    )
    code = (
        "import sys\n"
        "from export.sources.user_module import read_factory\n"
        "from export.input_spec import parse_inputs\n"
        "assert 'loadtest' not in sys.modules\n"
        f"read_factory({str(folder / 'net.py')!r} + ':make', parse_inputs(['x:float32[b,4]']))\n"
        "import loadtest\n"
        "assert not hasattr(loadtest, 'SIZE')\n"
    )
    root = Path(models.__file__).parent.parent
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr


def test_imports_from_where_the_command_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m nets.net` would have it, though `nets` is no package."""
    net = "from common.parts import Net\ndef make(): return Net()\n"
    written(tmp_path, {"nets/net": net, "common/parts": NET})
    monkeypatch.chdir(tmp_path)
    assert isinstance(read_factory("nets/net.py:make", INPUTS).module, nn.Module)
