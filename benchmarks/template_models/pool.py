"""The last step of the usual template where the graph does not pool: mean over tokens, length 1."""

import json
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args: dict[str, str]) -> None:
        self.hidden = json.loads(args["model_config"])["input"][0]["name"]

    def execute(self, requests: list[Any]) -> list[Any]:
        responses = []
        for request in requests:
            hidden = pb_utils.get_input_tensor_by_name(request, self.hidden).as_numpy()
            mask = pb_utils.get_input_tensor_by_name(request, "attention_mask").as_numpy()
            weights = mask[:, :, None].astype(np.float32)
            pooled = (hidden * weights).sum(axis=1) / weights.sum(axis=1).clip(min=1e-9)
            pooled /= np.linalg.norm(pooled, axis=1, keepdims=True).clip(min=1e-12)
            responses.append(
                pb_utils.InferenceResponse([pb_utils.Tensor("embedding", pooled.astype(np.float32))])
            )
        return responses
