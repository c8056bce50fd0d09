"""Azure Blob Storage (adlfs)."""

from __future__ import annotations

from triton_repo_builder.ship.stores.bucket import BucketStore
from triton_repo_builder.ship.stores.store import Hints


class AzureStore(BucketStore):
    SCHEME = "az"
    FORMS = "az://CONTAINER/PREFIX"
    HINTS = Hints(
        credentials="set AZURE_STORAGE_ACCOUNT_NAME and a key, or AZURE_STORAGE_CONNECTION_STRING",
        unreachable="check the network and AZURE_STORAGE_ACCOUNT_NAME",
        tries=4,  # azure-storage-blob's own
    )
