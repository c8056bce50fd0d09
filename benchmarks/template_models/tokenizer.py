"""The tokenizer model of the usual template: transformers, request by request, padded within the request."""

import json
from pathlib import Path
from typing import Any

import triton_python_backend_utils as pb_utils
from transformers import AutoTokenizer


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(Path(__file__).parent / "tokenizer")
        self.names = [output["name"] for output in json.loads(args["model_config"])["output"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            raw = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
            texts = [text.decode("utf-8") for text in raw.reshape(-1).tolist()]
            encoded = self.tokenizer(text=texts, return_tensors="np", padding=True, truncation=True)
            tensors = [pb_utils.Tensor(name, encoded[name]) for name in self.names]
            responses.append(pb_utils.InferenceResponse(output_tensors=tensors))
        return responses
