import json

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.config = json.loads(args["model_config"])
        output = pb_utils.get_output_config_by_name(self.config, "Z")
        self.type = pb_utils.triton_string_to_numpy(output["data_type"])

    def execute(self, requests):
        return []
