import json
import re
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import triton_python_backend_utils as pb_utils

SENTENCES = re.compile(r"(?<=[.!?])\s+")
BLANKS = re.compile(
    r"""\s+  # a blank ( or more
    """,
    re.VERBOSE,
)
NUMBER = np.float if hasattr(np, "float") else float


@dataclass
class Settings:
    kinds: ClassVar[list] = []
    names: list = field(default_factory=list)


class TritonPythonModel:
    def initialize(self, args):
        self.config = config = json.loads(args["model_config"])
        self.output = pb_utils.get_output_config_by_name(config, "Y")
        parameters = config["parameters"]
        parameters.setdefault("scale", {"string_value": "2"})
        self.scale = float(parameters["scale"]["string_value"])
        self.other = self.config["parameters"].get("other")
        own = self.read()
        self.own = own["parameters"]["own"]

    def read(self):
        return {"parameters": {"own": 1}}

    def execute(self, requests):
        return []
