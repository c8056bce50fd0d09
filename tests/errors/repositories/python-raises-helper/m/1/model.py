from helper import SCALE

class TritonPythonModel:
    def execute(self, requests): ...
