"""Send texts and their ids with tritonclient, and print the results as JSON.

Usage: triton_texts.py HTTP_HOST:PORT GRPC_HOST:PORT MODEL
Standard input is {"texts": [...], "ids": [...]}.
"""

import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton

url, grpc_address, model = sys.argv[1:]
content = json.load(sys.stdin)
client = triton.InferenceServerClient(url)
(tensor,) = client.get_model_metadata(model)["inputs"]
texts = np.array([text.encode() for text in content["texts"]], dtype=np.object_)
strings = np.array(content["texts"], dtype=np.object_)
ids = np.array(content["ids"], dtype=np.int64)


def infer(array, datatype, binary_in, binary_out, **options):
    given = triton.InferInput(tensor["name"], array.shape, datatype)
    given.set_data_from_numpy(array, binary_data=binary_in)
    requested = triton.InferRequestedOutput("output", binary_data=binary_out)
    return client.infer(model, [given], outputs=[requested], **options).as_numpy("output").tolist()


def refused(array, binary_in):
    try:
        infer(array, "BYTES", binary_in, True)
    except triton.InferenceServerException as error:
        return [error.status(), error.message()]
    return None


def over_grpc(array):
    client = triton_grpc.InferenceServerClient(grpc_address)
    given = triton_grpc.InferInput(tensor["name"], array.shape, "BYTES")
    given.set_data_from_numpy(array)
    try:
        return client.infer(model, [given]).as_numpy("output").tolist()
    except triton_grpc.InferenceServerException as error:
        return [error.status(), error.message()]


given = triton.InferInput(tensor["name"], texts.shape, "BYTES")
given.set_data_from_numpy(texts)
classes = triton.InferRequestedOutput("output", binary_data=True, class_count=1)
best = client.infer(model, [given], outputs=[classes]).as_numpy("output")
invalid = np.array([b"LATIN", b"SMALL \xff"], dtype=np.object_)
json.dump(
    {
        "tensor": tensor,
        "ids": infer(ids, "INT64", True, True),
        "binary": infer(texts, "BYTES", True, True),
        "json": infer(texts, "BYTES", False, False),
        "strings": infer(strings, "BYTES", True, False),
        "mixed": infer(texts, "BYTES", False, True),
        "column": infer(texts.reshape(-1, 1), "BYTES", True, True),
        "column_json": infer(texts.reshape(-1, 1), "BYTES", False, True),
        "gzip": infer(texts, "BYTES", True, True, request_compression_algorithm="gzip"),
        "alone": [infer(texts[row : row + 1], "BYTES", True, True)[0] for row in range(len(texts))],
        "labels": [row[0].decode().split(":")[2] for row in best],
        "invalid": refused(invalid, True),
        "grpc": over_grpc(texts),
        "invalid_over_grpc": over_grpc(invalid),
        "table": refused(np.array([[b"a", b"b"]], dtype=np.object_), True),
    },
    sys.stdout,
)
