import re

WORDS = re.compile(r"([A-Z]\w+")


class TritonPythonModel:
    def execute(self, requests):
        return []
