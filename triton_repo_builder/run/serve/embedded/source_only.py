"""Ignore bytecode in the server's Python processes, except beside code of this installation.

A repository may bring a ``__pycache__`` whose bytecode is another program than the source beside it: Python
runs it if it is marked as unchecked (PEP 552), and no digest covers it. Copied into the environment of these
processes, whose ``.pth`` file calls ``install``.
"""

import os
from importlib.machinery import SourceFileLoader
from types import CodeType


def install(trusted: list[str]) -> None:
    """Always compile modules from their source unless they are in the folders ``trusted``."""
    below = tuple(os.path.join(folder, "") for folder in trusted)  # noqa: PTH118  # pathlib is not imported yet
    cached = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        if path.startswith(below):
            return cached(self, fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code

    SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]  # for modules loaded by path, too
