"""The one error a user is meant to see: what is wrong, where, what to do, and its exit code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of ``trb``, one per kind of failure; docs/errors.md lists them for scripts."""

    FAILED_CHECKS = 1
    USAGE = 2
    NOT_ONNX = 10
    TRUNCATED = 11
    EXTERNAL_DATA = 12
    LFS_POINTER = 13
    UNSUPPORTED_TYPE = 14
    NOT_BATCHABLE = 15
    BAD_NAME = 16
    TOKENIZER_MISMATCH = 17
    SLOW_TOKENIZER = 18
    TOO_NEW = 19
    TASK_UNCLEAR = 20
    UNSUPPORTED_MODEL = 21
    NOT_FOUND = 22
    TOKENIZER_INVALID = 23
    GOLDEN_FAILED = 24
    SOME_FAILED = 29
    OUTPUT_NOT_WRITABLE = 30
    OUTPUT_NOT_OURS = 31
    EDITED_FILE = 32
    DISK_FULL = 33
    ENGINE_MISSING = 40
    PORT_BUSY = 41
    REPOSITORY_UNREADABLE = 42
    MODEL_FAILED = 43
    SERVER_DIED = 44
    NOT_RUNNING = 45
    UNREACHABLE = 46
    TIMED_OUT = 47
    DAEMON_UNREACHABLE = 48
    IMAGE_UNAVAILABLE = 49
    DOWNLOAD_FAILED = 50
    GPU_UNAVAILABLE = 51
    NOT_EXPLICIT = 52
    GIT_REFUSED = 60
    GIT_PUSH_FAILED = 61
    PROMOTE_FAILED = 62
    BAD_LOCATION = 80
    STORAGE_MISSING = 81
    ACCESS_DENIED = 82
    STORAGE_UNREACHABLE = 83
    STORAGE_FAILED = 84
    DIGEST_MISMATCH = 85
    NOT_PUSHED = 86
    CLIENT_MISSING = 87
    INTERRUPTED = 130


class TrbError(Exception):
    """A failure the user can act on.

    ``message`` says what is wrong in one sentence, ``where`` names the file, tensor or field,
    ``remedy`` says what to do. The command line prints the three and exits with ``code``.
    """

    def __init__(self, code: Exit, message: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.remedy}" if self.remedy else text
