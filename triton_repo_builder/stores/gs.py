"""Google Cloud Storage (gcsfs)."""

from __future__ import annotations

from triton_repo_builder.stores import location
from triton_repo_builder.stores.bucket import BucketStore
from triton_repo_builder.stores.location import Bucket
from triton_repo_builder.stores.store import Hints


class GoogleStore(BucketStore):
    """Revisions below one prefix of a bucket of Google's."""

    FORMS = "gs://BUCKET/PREFIX"
    HINTS = Hints(
        credentials="set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'",
        unreachable="check the network, and STORAGE_EMULATOR_HOST if that is set",
    )

    @staticmethod
    def parse(text: str, rest: str, revision: str) -> Bucket:
        """Read ``BUCKET[/PREFIX]``."""
        return location.bucket(text, "gs", rest, revision)
