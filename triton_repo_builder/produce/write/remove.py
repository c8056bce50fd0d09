"""Takes endpoints out of a repository."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from triton_repo_builder import repository
from triton_repo_builder.produce.write import ownership
from triton_repo_builder.produce.write.publish import Changes, Publication
from triton_repo_builder.repository import Manifest


def remove(output: Path, names: Sequence[str], *, force: bool = False) -> Publication:
    """The publication that removes endpoints and models that no other needs; writes nothing.

    Raises ``TrbError`` NOT_FOUND, EDITED_FILE, OUTPUT_FOREIGN. Your own files in those directories stay.
    """
    old = ownership.previous(output)
    ownership.check_names(names, old, output)
    remaining = {name: entry for name, entry in old.endpoints.items() if name not in names}
    needed = {model for entry in remaining.values() for model in entry.models}
    models = [m for name in names for m in old.endpoints[name].models if m not in needed]
    present = ownership.present(output, models)
    recorded = {path: record for path, record in old.files.items() if path.split("/")[0] in models}
    edited = [path for path, record in recorded.items() if not ownership.same(record, record, output / path)]
    edited = [path for path in edited if path in present]
    if edited and not force:
        raise ownership.edited_error(edited, output, "keep your edit elsewhere and use --force")
    kept = tuple(sorted(path for path in present if path not in recorded))
    changes = Changes(
        added=(), changed=(), removed=tuple(sorted(set(present) - set(kept))), kept=kept, edited=tuple(edited)
    )
    others = {path: record for path, record in old.files.items() if path not in recorded}
    return Publication(
        output=output,
        files=(),
        manifest=Manifest(endpoints=remaining, files=others).to_text(),
        # The ensemble first, what it needs after.
        names=(*dict.fromkeys(models), repository.MANIFEST),
        changes=changes,
        before=old,
    )
