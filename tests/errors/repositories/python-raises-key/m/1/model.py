class TritonPythonModel:
    def initialize(self, args):
        self.folder = args["model_directory"]

    def execute(self, requests):
        return []
