"""KServe's own server, with the models of the conformance suite.

Usage: kserve_server.py HTTP_PORT GRPC_PORT
"""

import sys

import kserve
from kserve.utils.utils import generate_uuid

from tests.conformance.models import DTYPES, MODELS

DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


class ConformanceModel(kserve.Model):
    """A model of the suite."""

    def __init__(self, model):
        super().__init__(model.name)
        self.model = model
        self.ready = True

    def get_input_types(self):
        return self._tensors(self.model.inputs)

    def get_output_types(self):
        return self._tensors(self.model.outputs)

    def _tensors(self, names):
        return [
            {"name": name, "datatype": self.model.datatype, "shape": [-1, self.model.width]} for name in names
        ]

    def predict(self, payload, headers=None):
        arrays = self.model.run({entry.name: entry.as_numpy() for entry in payload.inputs})
        outputs = []
        for name, array in arrays.items():
            output = kserve.InferOutput(
                name=name, shape=list(array.shape), datatype=DATATYPES[array.dtype.name]
            )
            output.set_data_from_numpy(array, binary_data=payload.use_binary_outputs)
            outputs.append(output)
        return kserve.InferResponse(
            # it cannot leave out the id
            response_id=payload.id or generate_uuid(),
            model_name=self.name,
            infer_outputs=outputs,
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


http_port, grpc_port = map(int, sys.argv[1:])
kserve.ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1).start(
    [ConformanceModel(m) for m in MODELS]
)
