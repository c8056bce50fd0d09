"""Every reader of files from outside."""

from __future__ import annotations

from tests.reliability.readers import answers, beside, graphs, options, pushed, repositories, sounds
from tests.reliability.readers.reader import Reader

MODULES = (graphs, beside, options, repositories, pushed, answers, sounds)
READERS: dict[str, Reader] = {reader.name: reader for module in MODULES for reader in module.READERS}
