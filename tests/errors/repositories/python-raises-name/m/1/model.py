import json


class TritonPythonModel:
    def initialize(self, args: Dict[str, str]):
        self.config = json.loads(args["model_config"])

    def execute(self, requests):
        return []
