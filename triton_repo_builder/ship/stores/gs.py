"""Google Cloud Storage (gcsfs)."""

from __future__ import annotations

from triton_repo_builder.ship.stores.bucket import BucketStore
from triton_repo_builder.ship.stores.store import Hints


class GoogleStore(BucketStore):
    SCHEME = "gs"
    FORMS = "gs://BUCKET/PREFIX"
    HINTS = Hints(
        credentials="set GOOGLE_APPLICATION_CREDENTIALS, or run 'gcloud auth application-default login'",
        unreachable="check the network, and STORAGE_EMULATOR_HOST if that is set",
        tries=6,  # gcsfs's own
    )
