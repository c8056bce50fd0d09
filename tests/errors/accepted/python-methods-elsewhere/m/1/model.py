import sys


class TritonPythonModel:
    if sys.version_info > (3,):
        from answers import execute

    def initialize(self):
        raise NotImplementedError


def initialize(self, args):
    self.model_name = args["model_name"]


TritonPythonModel.initialize = initialize
