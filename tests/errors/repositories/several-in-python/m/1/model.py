import torch
import transformers
from helper import run


class Model:
    def execute(self, requests):
        return run(requests)
