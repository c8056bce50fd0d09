"""A running server takes up what a store's pointer names, whenever it moves, or stays with what it serves."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, Exit, TrbError
from triton_repo_builder.repository.journal import staging
from triton_repo_builder.run import smoke
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.deploy import apply
from triton_repo_builder.ship.deploy.newest import Newest
from triton_repo_builder.ship.options import ApplyOptions
from triton_repo_builder.ship.stores import Location
from triton_repo_builder.ship.stores.signing_keys import Trust

LONGEST = 600.0
"""Seconds between two looks at a store that fails."""
IDLE = 0.5
"""Seconds within which a follower ends that only waits."""
REFUSALS = (Code.BAD_SIGNATURE, Code.DIGEST_MISMATCH)
"""Failures of what is stored, not of the store: only another revision helps."""
PASSING = (
    Code.REPOSITORY_BUSY,
    Code.DISK_FULL,
    Code.OUTPUT_NOT_WRITABLE,
    Code.UNREACHABLE,
    Code.SERVER_DIED,
)
"""Failures of this machine, which say nothing of a revision: it is tried again."""
_SCRATCH = Path("temporary files")


class Follower(threading.Thread):
    """Looks at the pointer until stopped; each revision is taken up once, proven by smoke, or refused."""

    def __init__(
        self,
        location: Location,
        root: Path,
        urls: smoke.Urls,
        *,
        revision: str,
        interval: float,
        trust: Trust | None,
        newest: Newest | None = None,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(name="trb-follow", daemon=True)
        self._location = location
        self._root = root
        self._urls = urls
        self._interval = interval
        self._trust = trust
        self._newest = newest
        """Refuses revisions that were signed before the newest one; None: they are served."""
        self._tell = tell
        self._seen = revision
        """The revision that was taken up or refused last."""
        self._serves = f"sha256:{revision}"
        self._named = self._said = ""
        """The last messages: where the pointer is, and the failure."""
        self._end = threading.Event()

    def interrupt(self) -> None:
        """Have it end as a command does that gets Ctrl-C: what is under way is undone. Join it afterwards."""
        self._end.set()
        self.join(IDLE)
        if self.is_alive() and self.ident is not None:
            raised = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident), raised)

    def run(self) -> None:
        """Look, take up, wait: longer and longer while the store fails."""
        pause = self._interval
        with contextlib.suppress(KeyboardInterrupt):
            while not self._end.wait(pause):
                pause = self._interval if self._looked() else min(2 * pause, max(LONGEST, self._interval))

    def _looked(self) -> bool:
        """``look``, and a bug is a failure as well: a server that silently follows no more would be worse."""
        try:
            return self.look()
        except Exception:
            bug = f"{traceback.format_exc()}This is a bug in trb: please report it."
            self._say(f"{bug}\n  still serves {self._serves}")
            return False

    def look(self) -> bool:
        """Take up the current revision if it is a new one; False if the store or this machine failed."""
        try:
            pinned = stores.pinned(self._location, self._trust)
            if pinned.revision == self._seen:
                return True
            if pinned.revision != self._named:
                self._named = pinned.revision
                self._tell(f"{self._location} is now sha256:{pinned.revision}")
            if self._newest is not None:
                self._newest.check(pinned)
            self._take_up(pinned)
        except (TrbError, RequestFailed, OSError) as error:
            failure = _failure(error, self._urls.http)
            self._say(f"{failure}\n  still serves {self._serves}")
            passing = failure.code in PASSING or failure.code.exit == Exit.STORE
            return failure.code in REFUSALS or not passing
        return True

    def _take_up(self, pinned: Location) -> None:
        with staging.temporary("follow") as folder:
            with staging.filling():
                stores.store(pinned).pull(folder, lambda name, done, total: None)
            try:
                applied = apply.run(folder, self._root, self._urls, ApplyOptions(force=True), self._tell)
            except TrbError as error:
                self._seen = self._seen if error.code in PASSING else pinned.revision
                error.where = error.where.replace(str(folder), str(pinned))
                raise
        if not applied.failed:
            self._seen, self._serves, self._said = pinned.revision, f"sha256:{pinned.revision}", ""
            self._tell(f"serves sha256:{pinned.revision}, proven by trb smoke")
            return
        changed = [each.drift.endpoint for each in applied.outcomes if each.drift and not each.error]
        if changed:
            self._serves += f", and of sha256:{pinned.revision} {', '.join(changed)}"
        for outcome in applied.failed:
            if outcome.error and outcome.error.code in PASSING:
                raise outcome.error
        self._seen = pinned.revision
        failed = apply.error(applied)
        # Nobody applies it again by hand, nor with other options.
        failed.where, failed.remedy = str(pinned), "push a revision that is correct: the next one is taken up"
        raise failed

    def _say(self, text: str) -> None:
        """Report a failure once, and none that ``interrupt`` caused."""
        if text != self._said and not self._end.is_set():
            self._said = text
            self._tell(text)


def _failure(error: TrbError | RequestFailed | OSError, http: str) -> TrbError:
    if isinstance(error, TrbError):
        return error
    if isinstance(error, RequestFailed):
        return TrbError(Code.UNREACHABLE, f"does not answer: {error}", where=http, remedy="see its log")
    return files.explain(error, _SCRATCH, how="by TMPDIR")
