"""Models that take texts: an encoder, a signature, and a small file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.infer_bodies import signature
from tests.support.manifests import MANIFEST
from turnpike.export.output.model_bytes import embed_manifest
from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.artifact.text_encoder import TextEncoder
from turnpike.service.artifact.text_records import TextInput, TextScheme, Vocabulary

ALPHABET = " ABCé\U0001f600"


def text_input(
    scheme: TextScheme = "alphabet",
    words: int = 2,
    characters: int = 3,
    name: str = "ids",
    vocabulary: Vocabulary | None = None,
) -> TextInput:
    return TextInput(
        input=name,
        scheme=scheme,
        words=words,
        characters=characters,
        vocabulary=vocabulary,
        texts=7,
        digest="0",
    )


def encoder(
    scheme: TextScheme = "alphabet",
    words: int = 2,
    characters: int = 3,
    alphabet: str = ALPHABET,
    vocabulary: Vocabulary | None = None,
) -> TextEncoder:
    return TextEncoder(text_input(scheme, words, characters, vocabulary=vocabulary), alphabet, "int64")


TEXTS: Signature = replace(signature(Tensor("ids", "int64", ("batch", "words", 3))), text=encoder())


def text_file(row: tuple[str | int, ...] = ("words", 3), **manifest: Any) -> bytes:
    """A file with a manifest, whose logits are the sums of a table's rows at the ids of a text.

    `row` has the sizes of its ids.
    """
    table = np.random.default_rng(0).normal(size=(len(ALPHABET), 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"]),
            helper.make_node("ReduceSum", ["rows", "axes"], ["logits"], keepdims=0),
        ],
        "texts",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", *row])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        [
            numpy_helper.from_array(table, "table"),
            numpy_helper.from_array(np.arange(1, len(row) + 1), "axes"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    fields = {
        "outputs": ("logits",),
        "labels": ("a", "b", "c"),
        "gates": (),
        "alphabet": ALPHABET,
        "text": text_input(),
        **manifest,
    }
    return embed_manifest(model.SerializeToString(), MANIFEST.model_copy(update=fields))
