import torch


class TritonPythonModel:
    def initialize(self, args):
        self.output = args["model_config"]["output"]

    def execute(self):
        return []
