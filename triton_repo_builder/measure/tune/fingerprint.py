"""Whether the repository that is tuned is still the one that was read."""

from __future__ import annotations

from collections.abc import Iterable

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.repository import Repository

State = dict[str, tuple[int, int]]


def take(repository: Repository | None, models: Iterable[str]) -> State:
    """Size and time of change of every file of these models."""
    if repository is None:
        return {}
    state = {}
    for model in models:
        for path in sorted((repository.path / model).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                stat = path.stat()
                state[path.relative_to(repository.path).as_posix()] = (stat.st_mtime_ns, stat.st_size)
    return state


def check(repository: Repository | None, models: Iterable[str], before: State) -> None:
    """Raise ``TrbError`` EDITED_FILE if anything changed."""
    now = take(repository, models)
    changed = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
    if changed:
        assert repository is not None
        raise TrbError(
            Code.EDITED_FILE,
            f"changed while it was tuned: {', '.join(changed[:3])}"
            + (f" and {len(changed) - 3} more" if len(changed) > 3 else ""),
            where=str(repository.path),
            remedy="what was measured is of another repository: run tune again when nobody edits it",
        )
