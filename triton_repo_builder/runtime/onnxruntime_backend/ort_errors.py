"""The words of Triton's C++ onnxruntime backend, and how to get them out of a Python process unchanged."""

from __future__ import annotations

import re

INVALID = "Invalid argument"
INTERNAL = "Internal"
UNAVAILABLE = "Unavailable"
UNSUPPORTED = "Unsupported"

_PREFIX = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : ")


class Refused(Exception):
    """A model that cannot be served as configured: the C++ backend's sentence and its error code."""

    def __init__(self, text: str, code: str = INVALID) -> None:
        super().__init__(text)
        self.code = code


def ort_text(error: Exception) -> str:
    """An exception of ONNX Runtime as the C++ backend prints it: ``onnx runtime error 7: …``."""
    text = str(error).strip()
    found = _PREFIX.match(text)
    if found:
        return f"onnx runtime error {found[1]}: {text[found.end() :]}"
    # Python's own checks (a missing input, say) carry no number; ONNX Runtime calls these invalid arguments.
    return f"onnx runtime error {2 if isinstance(error, ValueError) else 1}: {text}"


def surfaced(refused: Refused) -> Exception:
    """The exception to raise out of the model so that the server shows the sentence and nothing else.

    The stub prints ``<class name>: <text>``, a blank line, ``At:`` and a traceback, and the server calls all
    of it Internal. So the class is named after the code (or after the head of the text, where the code is
    Internal already), and a NUL ends the C string before the traceback.
    """
    name, text = refused.code, str(refused)
    if name == INTERNAL:
        head, colon, tail = text.partition(": ")
        name, text = (head, tail) if colon else ("onnxruntime", text)
    named: type[Exception] = type(name, (Exception,), {})
    return named(text + "\0")
