class TritonPythonModel:
    def initialize(self, args):
        raise NotImplementedError

    def execute(self, requests):
        return []
