from dataclasses import dataclass


@dataclass
class Settings:
    names: list = []


class TritonPythonModel:
    def execute(self, requests):
        return []
