"""A hand-made repository whose best setting is known: two instances, and batches of eight rows.

Its model sleeps. Eight rows take as long as one, more take longer than in two batches, and more than two
instances get in each other's way; it computes nothing, so that a busy machine hardly disturbs it.
"""

from __future__ import annotations

from pathlib import Path

MODEL = """
import json
import time
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        count = int(config["instance_group"][0]["count"])
        if count == @KILLS@:
            import os, signal
            # The stub's parent is the server.
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        self.slower = 1.0 if count <= 2 else 1.3 * count / 2

    def execute(self, requests):
        arrays = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        rows = sum(len(array) for array in arrays)
        time.sleep(0.03 * self.slower * max(1.0, rows / 8) ** 2)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", array)]) for array in arrays]
"""
CONFIG = """# Written by hand.
backend: "python"
max_batch_size: 32
input [{ name: "X" data_type: TYPE_FP32 dims: [2] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [2] }]
# One is enough, we thought.
instance_group [{ count: 1 kind: KIND_CPU }]
"""


def write(root: Path, *, kills: int = 0) -> Path:
    """The repository; with ``kills`` the server dies when it loads that many instances."""
    folder = root / "repository" / "sleeper"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.py").write_text(MODEL.replace("@KILLS@", str(kills)))
    (folder / "config.pbtxt").write_text(CONFIG)
    return folder.parent
