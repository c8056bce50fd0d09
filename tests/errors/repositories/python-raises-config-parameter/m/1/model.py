import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        self.k = int(config["parameters"]["k"])

    def execute(self, requests):
        return []
