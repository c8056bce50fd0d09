import sys


def export(cls):
    sys.modules[cls.__module__].TritonPythonModel = cls
    return cls
