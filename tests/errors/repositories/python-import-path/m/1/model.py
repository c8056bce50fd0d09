import os
import sys

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from helpers import scael  # noqa: E402


class TritonPythonModel:
    def execute(self, requests):
        return [scael(request) for request in requests]
