"""Azure Blob Storage (adlfs)."""

from __future__ import annotations

from triton_repo_builder.stores import location
from triton_repo_builder.stores.bucket import BucketStore
from triton_repo_builder.stores.location import Bucket
from triton_repo_builder.stores.store import Hints


class AzureStore(BucketStore):
    """Revisions below one prefix of a container of Azure's."""

    FORMS = "az://CONTAINER/PREFIX"
    HINTS = Hints(
        credentials="set AZURE_STORAGE_ACCOUNT_NAME and a key, or AZURE_STORAGE_CONNECTION_STRING",
        unreachable="check the network and AZURE_STORAGE_ACCOUNT_NAME",
    )

    @staticmethod
    def parse(text: str, rest: str, revision: str) -> Bucket:
        """Read ``CONTAINER[/PREFIX]``."""
        return location.bucket(text, "az", rest, revision)
