"""A repository with one small model of each kind that the dashboard has to show."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tests.highways.carries import Independent, LearnedCarry
from tests.highways.dense import Layer
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from tests.support.two_inputs import two_input_model
from turnpike import service
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.export.pipeline import export_model
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import build_network
from turnpike.models.networks.feedforward import ConvConfig
from turnpike.models.networks.recurrent import RhnConfig
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.text_records import TextInput

# names that strangers may give their models and classes
MARKUP = "<img src=x onerror=document.title='owned'>"
LABELS = ("<script>document.title='owned'</script>", "a & b", "\"c\" 'd'")
ALPHABET = " abcdefghij"


def create_repository(root: Path) -> Path:
    """Write the models into a folder.

    `digits-10` is the bundled model, `pictures` is convolutional, `steps` recurrent, `letters` takes texts by
    an alphabet, `own` has layers of another author and no labels, MARKUP has gates and labels but no profile,
    and `bare` has two inputs, no gates and no manifest.
    """
    shutil.copytree(Path(service.__file__).parent / "default/digits-10", root / "digits-10")
    torch.manual_seed(0)
    image = "x:float32[batch,1,8,8]"
    net = build_network(ConvConfig(inputs=(1, 8, 8), classes=3, stages=((4, 3),))).eval()
    export_model(
        net, root, name="pictures", inputs=[image], data=labelled_images(net, root), labels=LABELS, samples=6
    )
    net = build_network(RhnConfig(inputs=(1, 8, 8), classes=3, width=6, depth=2)).eval()
    export_model(net, root, name="steps", inputs=[image], data=labelled_images(net, root))
    net = build_network(
        CharacterCnnConfig(inputs=(3, 5), classes=3, alphabet=len(ALPHABET), projection=8)
    ).eval()
    letters = export_model(net, root, name="letters", inputs=["ids:int64[batch,words,5]"], labels=LABELS).path
    manifest = open_model(letters).manifest
    assert manifest is not None
    text = TextInput(input="ids", scheme="alphabet", words=3, characters=5, texts=1, digest="")
    with_text = manifest.model_copy(update={"alphabet": ALPHABET, "text": text})
    letters.write_bytes(embed_manifest(letters.read_bytes(), with_text))
    own = nn.Sequential(Independent(6), LearnedCarry(6, 6), Layer(6)).eval()
    export_model(own, root, name="own", inputs=["x:float32[batch,6]"])
    put_model(root, MARKUP, data=with_manifest(highway(), labels=LABELS))
    put_model(root, "bare", data=two_input_model())
    return root


def labelled_images(net: nn.Module, root: Path) -> Path:
    """Random images, with the classes that the network itself predicts."""
    x = np.random.default_rng(0).uniform(size=(60, 1, 8, 8)).astype(np.float32)
    with torch.no_grad():
        y = net(torch.from_numpy(x)).argmax(1).numpy()
    path = root / ".rows.npz"
    np.savez(path, x=x, y=y)
    return path
