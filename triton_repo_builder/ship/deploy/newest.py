"""The newest signed revision that a follower has seen: what was signed before it is not served any more.

Kept in a file of this user's, by pointer, so that a new start knows it as well.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.run.serve.background import registry
from triton_repo_builder.ship import stores
from triton_repo_builder.ship.stores import Location
from triton_repo_builder.ship.stores.signing_keys import Trust


class Newest:
    """The highest counter in a signature at one pointer, and the revision that it was for."""

    def __init__(self, location: Location, trust: Trust) -> None:
        self._location, self._trust = location, trust
        name = hashlib.sha256(str(location).encode()).hexdigest()
        self._file = registry.folder() / f"newest-{name[:32]}"
        self._revision, self._counter = _read(self._file)

    def check(self, pinned: Location) -> None:
        """Remember this revision. Raises BAD_SIGNATURE if it was signed before one that was seen."""
        if pinned.revision == self._revision:
            return
        counter = stores.counter(pinned, self._trust)
        if self._revision and counter <= self._counter:
            raise TrbError(
                Code.BAD_SIGNATURE,
                f"sha256:{pinned.revision} was signed before sha256:{self._revision}, which was seen here",
                where=str(self._location),
                remedy="who has an allowed key can sign it anew: trb push URL REPO --sign KEYFILE; to begin "
                f"again remove {self._file}",
            )
        self._revision, self._counter = pinned.revision, counter
        document = {"location": str(self._location), "revision": self._revision, "counter": counter}
        files.write(self._file, json.dumps(document).encode())


def _read(file: Path) -> tuple[str, int]:
    """Revision and counter; nothing if none was seen."""
    try:
        document = files.load_json(files.read(file))
        return str(document["revision"]), int(document["counter"])
    except FileNotFoundError:
        return "", 0
    except (OSError, *files.DAMAGED) as error:
        raise TrbError(
            Code.BAD_SIGNATURE,
            f"what was seen last cannot be read: {error}",
            where=str(file),
            remedy="remove that file to begin again, with the revision that is current now",
        ) from None
