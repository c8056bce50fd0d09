from dynamic import anything
from helper import __name__, one, three, two
from package import inner

class TritonPythonModel:
    def execute(self, requests): ...
