class TritonPythonModel:
    def initialize(self):
        pass

    def execute(self, requests):
        return []
