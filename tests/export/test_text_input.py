"""The proof that the service makes the ids of the training of texts, and its refusals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.support.manifests import MANIFEST
from tests.support.text_checkpoint import save_names_checkpoint
from turnpike.export.claims.checklist import Checklist, Claims
from turnpike.export.claims.text_claims import check_text
from turnpike.export.errors import ParityError, SourceOptionError, UsageError
from turnpike.export.input_spec import InputSpec, parse_inputs
from turnpike.export.network import Array, Network, Rows, TextForm
from turnpike.export.pipeline import export_model
from turnpike.export.sources.text_form import parse_text_alphabet
from turnpike.export.text_input import (
    difficult_texts,
    expect_ids_in_table,
    prove_text_input,
)
from turnpike.export.verify import verify_model
from turnpike.models.data.embedded import encode_texts
from turnpike.models.data.load import load_dataset
from turnpike.models.networks.character_cnn import CharacterCnnConfig
from turnpike.models.networks.families import build_network
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import open_model
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.artifact.text_records import TextInput, TextScheme, Vocabulary

ALPHABET = " ABC"
TEXTS = ("A B C", "", "CABBA unknown A", "x" * 200)
IDS = (InputSpec("ids", "int64", ("batch", "words", 4)),)
BYTES = TextForm("ids", "bytes")


def record(inputs: tuple[int, int] = (3, 4), **data: Any) -> TrainingRecord:
    config = CharacterCnnConfig(inputs=inputs, classes=2, alphabet=len(ALPHABET))
    return TrainingRecord(
        "names", config.to_dict(), data, {"test_fraction": None}, 0, {}, [], torch.__version__
    )


def trained(rows: Rows | None = None) -> Network:
    """A network of a training run on texts of 3 words of 4 characters."""
    return Network(
        "names",
        "checkpoint",
        IDS,
        alphabet=ALPHABET,
        text=TextForm("ids", "alphabet"),
        rows=rows,
        training=record(),
    )


def trained_rows(texts: tuple[str, ...] = TEXTS) -> Rows:
    return Rows({"ids": encode_texts(texts, ALPHABET, 3, 4).numpy()}, texts=texts)


def byte_ids(words: int = 3, characters: int = 4) -> Array:
    """The ids of TEXTS by the scheme `bytes`, in loops."""
    ids = np.zeros((len(TEXTS), words, characters), np.int64)
    for row, text in enumerate(TEXTS):
        for word, letters in enumerate(text.split()[:words]):
            for place, byte in enumerate(letters.encode()[:characters]):
                ids[row, word, place] = byte + 1
    return ids


def foreign(ids: Array, texts: tuple[str, ...] = TEXTS, form: TextForm | None = BYTES) -> Network:
    return Network("reader", "module", IDS, text=form, rows=Rows({"ids": ids}, texts=texts))


def prove(network: Network) -> TextInput | None:
    return prove_text_input(network, network.rows)


def test_texts_of_a_training_run_are_proved_on_its_test_rows() -> None:
    """And on difficult texts, whose ids the code of the training computes. Without rows, on these alone."""
    proved = prove(trained(trained_rows()))
    difficult = len(difficult_texts(ALPHABET, 3, 4))
    assert proved is not None
    assert (proved.input, proved.scheme, proved.words, proved.characters) == ("ids", "alphabet", 3, 4)
    assert proved.texts == len(TEXTS) + difficult
    assert re.fullmatch("[0-9a-f]{64}", proved.digest)
    for rows in (None, Rows(trained_rows().inputs)):
        others = prove(trained(rows))
        assert others is not None
        assert others.texts == difficult
        assert others.digest != proved.digest
    assert prove(trained(trained_rows())) == proved


def test_difficult_texts_have_what_data_seldom_has() -> None:
    """Each of these is converted differently in some program."""
    texts = difficult_texts(ALPHABET, 3, 4)
    assert "" in texts
    for letter in ("\u2003", "\x1f", "\0", "é", "\U0001f600"):
        assert any(letter in text for text in texts)
    words = [word for text in texts for word in text.split()]
    assert max(map(len, words)) > 100
    assert max(len(text.split()) for text in texts) > 3


@pytest.mark.parametrize(
    "fault",
    [
        lambda text: text.lower(),
        lambda text: text.replace("\x1f", "A"),
        lambda text: " ".join(text.split(" ")[:3]),
        lambda text: text[:100],
    ],
)
def test_another_conversion_is_refused(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these is right for the texts of most data sets."""
    encode = TextEncoder.encode
    monkeypatch.setattr(TextEncoder, "encode", lambda self, texts: encode(self, list(map(fault, texts))))
    with pytest.raises(
        ParityError, match=r"text: expected the id \d+ of the training for word \d+, character \d"
    ):
        prove(trained())


def test_rows_that_texts_do_not_give_are_refused() -> None:
    rows = trained_rows()
    rows.inputs["ids"][2, 0, 3] = 3
    with pytest.raises(
        ParityError,
        match=r"text: expected the id 3 of the training for word 1, character 4 of the text "
        r"'CABBA unknown A', and alphabet gives 2",
    ):
        prove(trained(rows))


def test_texts_of_a_foreign_network_are_proved_on_its_rows() -> None:
    """The size of a row is that of the data where the graph leaves it open."""
    proved = prove(foreign(byte_ids()))
    assert proved is not None
    assert (proved.scheme, proved.words, proved.characters, proved.texts) == ("bytes", 3, 4, 4)
    longer = prove(foreign(byte_ids(words=9)))
    assert longer is not None
    assert longer.words == 9


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            foreign(byte_ids(), form=TextForm("ids", "elmo")),
            "expected the id 66 of the training for word 1, character 1 of the text 'A B C', "
            "and elmo gives 259",
        ),
        (foreign(byte_ids(), texts=()), "expected --data with an array `texts` beside the ids of ids"),
        (replace(foreign(byte_ids()), rows=None), "expected --data with an array `texts`"),
        (
            replace(
                foreign(byte_ids(characters=2), form=TextForm("ids", "elmo")),
                inputs=(InputSpec("ids", "int64", ("batch", "words", "characters")),),
            ),
            "expected 1 x 3 ids or more for elmo, got 3 x 2",
        ),
    ],
)
def test_a_wrong_scheme_is_refused(network: Network, message: str) -> None:
    with pytest.raises(SourceOptionError, match=f"--text-alphabet: .*{re.escape(message)}"):
        prove(network)


def test_networks_without_texts_have_no_proof() -> None:
    assert prove(foreign(byte_ids(), form=None)) is None


PAIR = parse_inputs(["a:int64[batch,words,5]", "b:int32[batch,words,5]"])


@pytest.mark.parametrize(
    ("option", "inputs", "form"),
    [
        ("bytes", IDS, TextForm("ids", "bytes")),
        ("ids=elmo", IDS, TextForm("ids", "elmo")),
        ("b=characterbert", PAIR, TextForm("b", "characterbert")),
        ("bytes", (*parse_inputs(["mask:bool[batch,words]"]), *IDS), TextForm("ids", "bytes")),
    ],
)
def test_the_option_names_scheme_and_input(
    option: str, inputs: tuple[InputSpec, ...], form: TextForm
) -> None:
    assert parse_text_alphabet(option, Network("net", "module", inputs)) == form


@pytest.mark.parametrize(
    ("option", "network", "message"),
    [
        (
            "utf-8",
            Network("net", "module", IDS),
            "expected bytes, elmo, characterbert, or a file of tokens, got 'utf-8'",
        ),
        (
            "alphabet",
            Network("net", "module", IDS),
            "expected bytes, elmo, characterbert, or a file of tokens, got 'alphabet'",
        ),
        ("bytes", Network("net", "module", PAIR), "expected [NAME=]bytes for an input of integers"),
        ("x=bytes", Network("net", "module", IDS), "got x= for ids:int64[batch,words,4]"),
        (
            "bytes",
            Network("net", "module", parse_inputs(["x:float32[batch,2,3]"])),
            "got no name for x:float32",
        ),
        ("bytes", Network("net", "module", parse_inputs(["x:int64[5,2,3]"])), "got no name for x:int64"),
        ("bytes", Network("net", "module", parse_inputs(["x:int64[batch,3]"])), "got no name for x:int64"),
        ("bytes", trained(), "expected none, since the training recorded its alphabet, got 'bytes'"),
    ],
)
def test_options_that_do_not_fit_are_refused(option: str, network: Network, message: str) -> None:
    with pytest.raises(UsageError, match=f"--text-alphabet: .*{re.escape(message)}"):
        parse_text_alphabet(option, network)


def rows_of(ids: list[list[int]], texts: list[str]) -> Rows:
    return Rows({"ids": np.array(ids, np.int64)}, texts=tuple(texts))


def with_vocabulary(vocabulary: Any, rows: Rows) -> Network:
    """A network whose rows are ids of words or characters, and what its user says about them."""
    network = Network("net", "module", parse_inputs(["ids:int64[batch,words]"]), rows=rows)
    return replace(network, text=parse_text_alphabet(vocabulary, network))


def test_texts_of_a_vocabulary_are_proved_on_its_rows() -> None:
    rows = rows_of([[2, 1, 0], [3, 2, 2]], ["good day", "film good good good"])
    proved = prove(with_vocabulary(["<pad>", "<unk>", "good", "film"], rows))
    assert proved is not None
    assert (proved.scheme, proved.row_shape, proved.texts) == ("words", (3,), 2)
    rows = rows_of([[2, 3, 0], [3, 2, 1]], ["ab", "ba~"])
    proved = prove(with_vocabulary({"_": 0, "~": 1, "a": 2, "b": 3}, rows))
    assert proved is not None
    assert (proved.scheme, proved.row_shape) == ("characters", (3,))


@pytest.mark.parametrize(
    ("vocabulary", "rows", "message"),
    [
        (
            ["<pad>", "<unk>", "good"],
            rows_of([[2, 1], [2, 0]], ["Good day", "good"]),
            "expected the id 2 of the training for word 1 of the text 'Good day', and words (3 tokens, "
            "padding <pad>, unknown <unk>) gives 1; all texts give their ids with "
            '{"lower": true, "unknown": 1, "padding": 0} beside "tokens" in a .json file',
        ),
        (
            ["a", "b", "c", "_"],
            rows_of([[0, 1, 3], [0, 2, 2]], ["ab", "acc"]),
            "expected the id 3 of the training for character 3 of the text 'ab', and characters (4 tokens, "
            "padding a, unknown left out) gives 0; all texts give their ids with "
            '{"lower": false, "unknown": null, "padding": 3} beside',
        ),
        (
            ["<pad>", "good", "film"],
            rows_of([[2, 1]], ["good film"]),
            "word 1 of the text 'good film', and words (3 tokens, padding <pad>, unknown left out) gives 1",
        ),
    ],
)
def test_other_ids_are_refused_with_the_rules_that_give_them(
    vocabulary: Any, rows: Rows, message: str
) -> None:
    with pytest.raises(SourceOptionError, match=re.escape(message)):
        prove(with_vocabulary(vocabulary, rows))


def test_a_vocabulary_larger_than_the_table_of_the_network_is_refused() -> None:
    """Also where a row has fewer ids than the vocabulary."""
    words = [f"word{number}" for number in range(1000)]
    text = prove(foreign_words(words))
    rows = Rows({"ids": np.zeros((2, 3, 4), np.int64)})
    expect_ids_in_table(text, open_model(reader_with_table(1000)), rows)
    with pytest.raises(
        SourceOptionError,
        match="expected a network for the ids 0 to 999 of alphabet, and it fails on some of 768 to 999",
    ):
        expect_ids_in_table(text, open_model(reader_with_table(999)), rows)


def foreign_words(words: list[str]) -> Network:
    letters = Vocabulary(tokens=("_", "A", *words[2:]))
    return foreign(
        np.array([[[1, 0, 0, 0], [0] * 4, [0] * 4]]),
        texts=("A",),
        form=TextForm("ids", "alphabet", letters),
    )


def reader_with_table(size: int) -> bytes:
    """A file that looks its ids up in a table of this size."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["output"])],
        "reader",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "words", 4])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", "words", 4])],
        [numpy_helper.from_array(np.zeros(size, np.float32), "table")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def test_a_network_with_too_small_a_table_is_refused() -> None:
    """Its texts would work until one has a rare byte."""
    text = prove(foreign(byte_ids()))
    rows = Rows({"ids": byte_ids()})
    expect_ids_in_table(text, open_model(reader_with_table(257)), rows)
    with pytest.raises(
        SourceOptionError, match="expected a network for the ids 0 to 256 of bytes, and it fails"
    ):
        expect_ids_in_table(text, open_model(reader_with_table(256)), rows)


def check(manifest: Manifest, network: Network, *, has_rows: bool = False) -> Claims:
    claims = Checklist(Path("model.onnx"))
    check_text(claims, manifest, network, has_rows=has_rows)
    return claims.result()


def test_a_manifest_is_compared_with_the_source() -> None:
    text = prove(trained(trained_rows()))
    assert text is not None
    manifest = MANIFEST.model_copy(update={"alphabet": ALPHABET, "text": text})
    assert {"alphabet", "text"} <= set(check(manifest, trained(trained_rows()), has_rows=True).checked)
    # the proof may have been on other texts
    assert {"text.texts", "text.digest"} <= check(manifest, trained()).claimed.keys()
    for change in ({"alphabet": " CAB"}, {"text": text.model_copy(update={"words": 4})}, {"text": None}):
        with pytest.raises(ParityError, match=f"model.onnx: manifest: {next(iter(change))}: expected"):
            check(manifest.model_copy(update=change), trained())


@pytest.mark.parametrize("change", [{"texts": 99_999}, {"digest": "0" * 64}])
def test_the_ids_of_the_texts_are_compared_if_the_rows_are_those_of_the_export(
    change: dict[str, Any],
) -> None:
    text = prove(trained(trained_rows()))
    assert text is not None
    other = text.model_copy(update=change)
    manifest = MANIFEST.model_copy(update={"alphabet": ALPHABET, "text": other})
    with pytest.raises(ParityError, match="manifest: text: digest: expected "):
        check(manifest, trained(trained_rows()), has_rows=True)


def test_a_manifest_is_compared_with_rows_that_have_texts() -> None:
    """A foreign network does not say how it reads texts, but its rows do."""
    text = prove(foreign(byte_ids()))
    assert text is not None
    manifest = MANIFEST.model_copy(update={"text": text})
    assert "text" in check(manifest, foreign(byte_ids(), form=None)).checked
    assert "text" in check(manifest, replace(foreign(byte_ids(), form=None), rows=None)).claimed
    other = manifest.model_copy(update={"text": text.model_copy(update={"scheme": "elmo"})})
    with pytest.raises(ParityError, match="manifest: text: scheme: elmo: .*elmo gives 259"):
        check(other, foreign(byte_ids(), form=None))
    elsewhere = manifest.model_copy(update={"text": text.model_copy(update={"input": "x"})})
    with pytest.raises(ParityError, match="manifest: text: input: expected an input, ids, got 'x'"):
        check(elsewhere, foreign(byte_ids(), form=None))


def ids_by(scheme: TextScheme, texts: list[str], words: int, characters: int) -> Array:
    text = TextInput(input="ids", scheme=scheme, words=words, characters=characters, texts=0, digest="")
    return TextEncoder(text, "", "int64").encode(texts)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "ids"), [("bytes", 257), ("elmo", 262), ("characterbert", 263)])
def test_a_foreign_network_is_exported_with_its_texts(tmp_path: Path, scheme: TextScheme, ids: int) -> None:
    """The service then takes texts for it, and the proof can be repeated. Other rows are refused."""
    texts = ["an old text", "Größe, 界!", "", "one two three four five six seven", "[MASK] <S>"]
    torch.manual_seed(0)
    config = CharacterCnnConfig(
        inputs=(5, 9), classes=2, alphabet=ids, projection=4, filter_counts=(3, 3, 3, 3)
    )
    net = build_network(config).eval()
    data = tmp_path / "rows.npz"
    rows = ids_by(scheme, texts, 5, 9)
    np.savez(data, ids=rows, texts=texts, y=np.arange(5) % 2)
    options: dict[str, Any] = {"inputs": ["ids:int64[batch,words,9]"], "data": data}
    result = export_model(net, tmp_path / "repo", name="reader", text_alphabet=scheme, samples=2, **options)
    assert result.manifest.text is not None
    assert (result.manifest.text.words, result.manifest.text.texts) == (5, 5)
    assert [sample.text for sample in result.manifest.samples] == texts[:2]
    encoder = TextEncoder.of(result.manifest, {"ids": open_model(result.path).inputs[0]})
    assert encoder is not None
    np.testing.assert_array_equal(encoder.encode(texts), rows)
    verify_model(result.path, net, **options)
    np.savez(data, ids=rows + 1, texts=texts)
    with pytest.raises(SourceOptionError, match="--text-alphabet: expected the id"):
        export_model(net, tmp_path / "other", name="reader", text_alphabet=scheme, **options)
    assert not list((tmp_path / "other").rglob("*.onnx"))


WORD_TEXTS = ["The film was very good", "", "a b c d e f g h i", "FILM film"]
WORD_TOKENS = ["<pad>", "<unk>", "film", "good", "a"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["list", "lines", "json"])
def test_a_network_with_a_vocabulary_is_exported_with_its_texts(tmp_path: Path, form: str) -> None:
    """However the vocabulary is given; the proof can be repeated without it, since the file has it."""
    words = [
        [WORD_TOKENS.index(word) if word in WORD_TOKENS else 1 for word in text.split()][:6]
        for text in WORD_TEXTS
    ]
    ids = np.array([row + [0] * (6 - len(row)) for row in words])
    data = tmp_path / "rows.npz"
    np.savez(data, ids=ids, texts=WORD_TEXTS)
    vocabulary: Any = WORD_TOKENS
    if form == "lines":
        vocabulary = tmp_path / "vocabulary.txt"
        vocabulary.write_text("\n".join(WORD_TOKENS))
    elif form == "json":
        vocabulary = tmp_path / "vocabulary.json"
        vocabulary.write_text(
            json.dumps({"tokens": {word: number for number, word in enumerate(WORD_TOKENS)}})
        )
    torch.manual_seed(0)
    net = WordReader().eval()
    options: dict[str, Any] = {"inputs": ["ids:int64[batch,words]"], "data": data}
    result = export_model(
        net, tmp_path / "repo", name="reader", text_alphabet=vocabulary, samples=2, **options
    )
    text = result.manifest.text
    assert text is not None
    assert text.vocabulary == Vocabulary(tokens=tuple(WORD_TOKENS), unknown=1)
    encoder = TextEncoder.of(result.manifest, {"ids": open_model(result.path).inputs[0]})
    assert encoder is not None
    np.testing.assert_array_equal(encoder.encode(WORD_TEXTS), ids)
    assert "text" in verify_model(result.path, net, **options).claims.checked
    np.savez(data, ids=np.flip(ids, 1), texts=WORD_TEXTS)
    with pytest.raises(ParityError, match="text: scheme: words: .*expected the id"):
        verify_model(result.path, net, **options)


class WordReader(nn.Module):
    """The mean of the embeddings of a text's words, and a highway layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORD_TOKENS), 4)
        self.h, self.t, self.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids).mean(1)
        t = torch.sigmoid(self.t(x))
        result: torch.Tensor = self.out(torch.relu(self.h(x)) * t + x * (1 - t))
        return result


@pytest.mark.slow
def test_a_training_run_on_texts_is_exported_with_them(tmp_path: Path) -> None:
    """With the alphabet of the run, and the texts of samples."""
    dataset = load_dataset("names", seed=0)
    run = save_names_checkpoint(tmp_path / "model.safetensors")
    result = export_model(run, tmp_path / "repo")
    text = result.manifest.text
    assert text is not None
    assert (text.scheme, text.words, text.characters) == ("alphabet", 8, 12)
    assert text.texts == 2000 + len(difficult_texts(dataset.alphabet, 8, 12))
    assert {sample.text for sample in result.manifest.samples} <= set(dataset.test.texts)
    assert all(sample.text for sample in result.manifest.samples)
    verify_model(result.path, run)
