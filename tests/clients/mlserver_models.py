"""A runtime of MLServer for the models of the conformance suite."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

from tests.conformance.models import MODELS

BY_NAME = {model.name: model for model in MODELS}


class ConformanceModel(MLModel):
    """A model of the suite, by its name."""

    async def predict(self, payload):
        inputs = {entry.name: NumpyCodec.decode_input(entry) for entry in payload.inputs}
        arrays = BY_NAME[self.name].run(inputs)
        names = [output.name for output in payload.outputs or ()] or list(arrays)
        return InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output(name, arrays[name]) for name in names],
        )
