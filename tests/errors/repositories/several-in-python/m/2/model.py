import torch


class TritonPythonModel:
    def execute(self, requests):
        return []
