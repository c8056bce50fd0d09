"""Follow a growing log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TICK = 0.2
CHUNK = 1 << 16


def follow(
    file: Callable[[], Path], write: Callable[[str], object], ended: Callable[[], bool], *, start: int = 0
) -> None:
    """Write the file from byte ``start`` on, and later additions, until ``ended`` returns True.

    ``file`` is called each time, since the file may be moved.
    """
    position = start
    wait = threading.Event()
    while True:
        last = ended()
        position = relay(file(), position, write, last=last)
        if last:
            return
        wait.wait(TICK)


def relay(file: Path, position: int, write: Callable[[str], object], *, last: bool) -> int:
    """Write the whole lines after byte ``position``, at the ``last`` call everything; the new position."""
    try:
        with file.open("rb") as source:
            source.seek(position)
            while chunk := source.read(CHUNK):
                # Whole lines, so that no character is cut in two.
                end = chunk.rfind(b"\n") + 1
                if not end and not last and len(chunk) < CHUNK:
                    break
                whole = chunk[: end or len(chunk)]
                write(whole.decode("utf-8", "replace"))
                position += len(whole)
                source.seek(position)
    except OSError:
        pass
    return position


@contextmanager
def following(file: Path, write: Callable[[str], object]) -> Iterator[None]:
    """Follow the file in the background while the ``with`` block runs."""
    over = threading.Event()
    thread = threading.Thread(target=follow, args=(lambda: file, write, over.is_set), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(2)


def last_lines(file: Path, count: int) -> int:
    """Position of the first byte of the last ``count`` lines."""
    data = file.read_bytes()
    if not count:
        return len(data)
    position = len(data) - data.endswith(b"\n")
    for _ in range(count):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
