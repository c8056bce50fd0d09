from helper import scale

class TritonPythonModel:
    def execute(self, requests): ...
