"""``python -m triton_repo_builder`` is ``trb``; ``-m`` itself imports from the current folder."""

import os
import sys


def _is_current(folder: str) -> bool:
    try:
        return os.path.samefile(folder or ".", ".")  # noqa: PTH121  pathlib is not imported yet
    except OSError:
        return False


# First in the path is the current folder. It stays where it is the checkout that this package is of.
if _is_current(sys.path[0]) and not __file__.startswith(os.path.join(sys.path[0], "triton_repo_builder", "")):  # noqa: PTH118
    del sys.path[0]

from triton_repo_builder.cli import main  # noqa: E402

main()
