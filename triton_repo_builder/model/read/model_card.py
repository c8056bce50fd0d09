"""The model card of a folder: README.md, whose front matter states the licence.

https://huggingface.co/docs/hub/model-cards
"""

from __future__ import annotations

import re
from pathlib import Path

from triton_repo_builder.base import containment, files

CARD = "README.md"
LICENCE = re.compile(
    r"^(license|license_name):[ \t]*[\"']?([A-Za-z0-9][\w.+ -]*?)[\"']?[ \t]*$", re.MULTILINE
)


def licence(folder: Path) -> str:
    """The licence that the model card states: an identifier of the Hub, or a name; empty without."""
    file = containment.within(folder, CARD)
    try:
        card = files.read_text(file, "replace", files.LARGEST_DOCUMENT) if file else ""
    except OSError:
        return ""
    front = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    stated = dict(LICENCE.findall(front[1])) if front else {}
    named = str(stated.get("license", ""))
    return str(stated.get("license_name", named)) if named == "other" else named
