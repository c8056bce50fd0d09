"""Memory that a large model's sessions do not need at the moment is given back.

ONNX Runtime maps the weights of a large file, and every page that a run has touched stays resident. Between
runs they are dropped: the next run reads them from the page cache again.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

SMAPS = Path("/proc/self/smaps")
"""proc_pid_smaps(5); elsewhere nothing is given back."""
_DONT_NEED = 4
"""MADV_DONTNEED, madvise(2)."""
_HEADER = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ +(/.*)")


def drop(weights: Iterable[Path]) -> None:
    """Drop the pages of these files that this process maps, and what malloc keeps for later."""
    library = ctypes.CDLL(None)
    files = {str(path.resolve()) for path in weights}
    for start, end in _unchanged(files):
        library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _DONT_NEED)
    if hasattr(library, "malloc_trim"):  # glibc
        library.malloc_trim(0)


def _unchanged(files: set[str]) -> Iterator[tuple[int, int]]:
    """Addresses of mappings of these files without a page that was written to, which would be lost."""
    try:
        lines = SMAPS.read_text().splitlines()
    except OSError:
        return
    span: tuple[int, int] | None = None
    for line in lines:
        if header := _HEADER.fullmatch(line):
            ours = header[3] in files
            span = (int(header[1], 16), int(header[2], 16)) if ours else None
        elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            span = None
        elif span and line.startswith("Anonymous:") and line.split()[1] == "0":
            yield span
            span = None
