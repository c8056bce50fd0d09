"""What a store's failure means for the user."""

from __future__ import annotations

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.ship.stores import failures
from triton_repo_builder.ship.stores.s3 import S3Store


class NoCredentialsError(Exception):
    """As botocore calls it."""


class ProfileNotFound(Exception):
    """As botocore calls it."""


class HttpResponseError(Exception):
    """As gcsfs and azure have it: a status."""

    def __init__(self, status: int) -> None:
        super().__init__("said no")
        self.status = status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FileNotFoundError("The specified bucket does not exist"), Code.STORAGE_MISSING),
        (PermissionError("Access Denied"), Code.ACCESS_DENIED),
        (NoCredentialsError("Unable to locate credentials"), Code.ACCESS_DENIED),
        (ProfileNotFound("The config profile (nope) could not be found"), Code.ACCESS_DENIED),
        (HttpResponseError(403), Code.ACCESS_DENIED),
        (HttpResponseError(404), Code.STORAGE_MISSING),
        (HttpResponseError(500), Code.STORAGE_FAILED),
        (TimeoutError("late"), Code.STORAGE_UNREACHABLE),
        (ConnectionResetError("gone"), Code.STORAGE_UNREACHABLE),
        (OSError("Forbidden: b/models/o"), Code.ACCESS_DENIED),
        (ValueError("Invalid endpoint: junk"), Code.STORAGE_UNREACHABLE),
    ],
)
def test_each_cause_has_its_code(error: Exception, code: Code) -> None:
    with pytest.raises(TrbError) as caught, failures.explained(S3Store.HINTS, "s3://models"):
        raise error
    assert (caught.value.code, caught.value.where) == (code, "s3://models")
    assert caught.value.remedy


def test_a_bug_of_ours_is_no_failure_of_the_store() -> None:
    with pytest.raises(KeyError), failures.explained(S3Store.HINTS, "s3://models"):
        raise KeyError("x")


def test_a_full_disk_of_this_machine_is_not_the_store_that_fails() -> None:
    """Whoever writes there says which disk it is."""
    with pytest.raises(OSError, match="No space left"), failures.explained(S3Store.HINTS, "s3://models"):
        raise OSError(28, "No space left on device")
