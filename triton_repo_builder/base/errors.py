"""The one error a user is meant to see: the fault, its place, the remedy, its kind and its exit code."""

from __future__ import annotations

from enum import Enum, IntEnum


class Exit(IntEnum):
    """Exit codes of ``trb``, one per family of failures; docs/errors.md lists them for scripts."""

    CHECKS = 1
    USAGE = 2
    MODEL = 3
    NOT_FOUND = 4
    OUTPUT = 5
    ENGINE = 6
    SERVER = 7
    GIT = 8
    PROMOTE = 9
    STORE = 10
    PARTLY = 11
    BUG = 70
    INTERRUPTED = 130


class Code(Enum):
    """Kinds of failure: a stable name, printed in brackets and in ``--json``, and its family's exit code."""

    FAILED_CHECKS = ("failed-checks", Exit.CHECKS)
    NOT_COMPARED = ("not-compared", Exit.CHECKS)
    ACCURACY_LOST = ("accuracy-lost", Exit.CHECKS)
    OBJECTIVE_UNMET = ("objective-unmet", Exit.CHECKS)
    SLOWER = ("slower", Exit.CHECKS)
    USAGE = ("usage", Exit.USAGE)
    NOT_ONNX = ("not-onnx", Exit.MODEL)
    TRUNCATED = ("truncated", Exit.MODEL)
    EXTERNAL_DATA = ("external-data", Exit.MODEL)
    OUTSIDE_FOLDER = ("outside-folder", Exit.MODEL)
    LFS_POINTER = ("lfs-pointer", Exit.MODEL)
    UNSUPPORTED_TYPE = ("unsupported-type", Exit.MODEL)
    NOT_BATCHABLE = ("not-batchable", Exit.MODEL)
    BAD_NAME = ("bad-name", Exit.MODEL)
    TOKENIZER_MISMATCH = ("tokenizer-mismatch", Exit.MODEL)
    SLOW_TOKENIZER = ("slow-tokenizer", Exit.MODEL)
    TOO_NEW = ("too-new", Exit.MODEL)
    TASK_UNCLEAR = ("task-unclear", Exit.MODEL)
    UNSUPPORTED_MODEL = ("unsupported-model", Exit.MODEL)
    NOT_FOUND = ("not-found", Exit.NOT_FOUND)
    TOKENIZER_INVALID = ("tokenizer-invalid", Exit.MODEL)
    GOLDEN_FAILED = ("golden-failed", Exit.MODEL)
    SOME_FAILED = ("some-failed", Exit.PARTLY)
    OUTPUT_NOT_WRITABLE = ("output-not-writable", Exit.OUTPUT)
    OUTPUT_FOREIGN = ("output-foreign", Exit.OUTPUT)
    EDITED_FILE = ("edited-file", Exit.OUTPUT)
    DISK_FULL = ("disk-full", Exit.OUTPUT)
    REPOSITORY_BUSY = ("repository-busy", Exit.OUTPUT)
    ENGINE_MISSING = ("engine-missing", Exit.ENGINE)
    PORT_BUSY = ("port-busy", Exit.ENGINE)
    REPOSITORY_UNREADABLE = ("repository-unreadable", Exit.NOT_FOUND)
    MODEL_FAILED = ("model-failed", Exit.SERVER)
    SERVER_DIED = ("server-died", Exit.SERVER)
    NOT_RUNNING = ("not-running", Exit.SERVER)
    UNREACHABLE = ("unreachable", Exit.SERVER)
    ADMIN_KEY = ("admin-key", Exit.SERVER)
    TIMED_OUT = ("timed-out", Exit.SERVER)
    DAEMON_UNREACHABLE = ("daemon-unreachable", Exit.ENGINE)
    IMAGE_UNAVAILABLE = ("image-unavailable", Exit.ENGINE)
    DOWNLOAD_FAILED = ("download-failed", Exit.STORE)
    GPU_UNAVAILABLE = ("gpu-unavailable", Exit.ENGINE)
    NOT_EXPLICIT = ("not-explicit", Exit.SERVER)
    GIT_REFUSED = ("git-refused", Exit.GIT)
    GIT_PUSH_FAILED = ("git-push-failed", Exit.GIT)
    PROMOTE_FAILED = ("promote-failed", Exit.PROMOTE)
    APPLY_FAILED = ("apply-failed", Exit.PROMOTE)
    BAD_LOCATION = ("bad-location", Exit.STORE)
    STORAGE_MISSING = ("storage-missing", Exit.STORE)
    ACCESS_DENIED = ("access-denied", Exit.STORE)
    STORAGE_UNREACHABLE = ("storage-unreachable", Exit.STORE)
    STORAGE_FAILED = ("storage-failed", Exit.STORE)
    DIGEST_MISMATCH = ("digest-mismatch", Exit.STORE)
    BAD_KEY = ("bad-key", Exit.STORE)
    BAD_SIGNATURE = ("bad-signature", Exit.STORE)
    NOT_PUSHED = ("not-pushed", Exit.STORE)
    CLIENT_MISSING = ("client-missing", Exit.STORE)
    INTERRUPTED = ("interrupted", Exit.INTERRUPTED)

    def __init__(self, kind: str, exit_code: Exit) -> None:
        self.kind = kind
        self.exit = exit_code


class TrbError(Exception):
    """A failure the user can act on.

    ``message`` states the fault in one sentence, ``where`` the file, tensor or field, ``remedy`` what to do.
    The command line prints the three and exits with ``code.exit``.
    """

    def __init__(self, code: Code, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.remedy}" if self.remedy else text
