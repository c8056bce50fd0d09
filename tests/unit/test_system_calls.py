"""What strace writes is read as tests/reliability/system_calls.py needs it."""

from __future__ import annotations

import pytest

from tests.reliability import strace
from tests.reliability.judge import Known
from tests.reliability.scenarios import State

LOG = """\
41    openat(AT_FDCWD</w>, "/w/repo/a/config.pbtxt", O_RDONLY|O_CLOEXEC) = 3</w/repo/a/config.pbtxt>
41    openat(AT_FDCWD</w>, "/w/.repo.trb-1/a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 4</w/.repo.trb-1/a>
41    write(1</w/out>, ""..., 5)             = 5
41    write(4</w/.repo.trb-1/a>, ""..., 9 <unfinished ...>
42    write(1</w/out>, ""..., 1)             = 1
41    <... write resumed>)                   = 9
41    ioctl(4</w/.repo.trb-1/a>, TCGETS, 0x7ffc) = -1 ENOTTY (Inappropriate ioctl for device)
41    ioctl(4</w/.repo.trb-1/a>, BTRFS_IOC_CLONE or FICLONE, 5</w/src>) = -1 EOPNOTSUPP (not supported)
41    mkdir("/elsewhere/repo", 0777)         = 0
41    rename("/w/.repo.trb-1/a", "/w/repo/a") = 0
41    unlinkat(6</w/.repo.trb-1>, "a b", AT_REMOVEDIR) = 0
41    unlink(".git/index.lock")              = -1 ENOENT (No such file or directory)
41    +++ exited with 0 +++
"""
PARTS = ("repo/", "repo", ".repo.trb-", ".git")


def test_the_calls_that_change_the_repository_are_found_with_their_numbers() -> None:
    found = strace.calls(LOG, "/w", PARTS)
    assert [(call.pid, call.name, call.number, call.failed) for call in found] == [
        (41, "openat", 2, False),
        (41, "write", 2, False),
        (41, "ioctl", 2, True),
        (41, "rename", 1, False),
        (41, "unlinkat", 1, False),
        (41, "unlink", 1, True),
    ]
    assert found[3].paths == ("/w/.repo.trb-1/a", "/w/repo/a")
    assert [call.paths[0] for call in found[4:]] == ["/w/.repo.trb-1/a b", "/w/.git/index.lock"]


def test_a_record_of_one_process_has_no_numbers_of_processes() -> None:
    log = 'rename("/w/repo/x", "/w/repo/y") = 0\n'
    assert [(call.pid, call.number) for call in strace.calls(log, "/w")] == [(0, 1)]


def test_an_empty_record_has_no_calls() -> None:
    assert strace.calls("", "/w") == []


WAKES = """\
openat(AT_FDCWD</w>, "repo/x", O_RDONLY) = 4</w/repo/x>
openat(AT_FDCWD</w>, "/proc/1/stat", O_RDONLY) = 5</proc/1/stat>
openat(AT_FDCWD</w>, "repo/x", O_WRONLY|O_CREAT, 0666) = 4</w/repo/x>
write(9<anon_inode:[eventfd]>, ""..., 8) = 8
write(4</w/repo/x>, ""..., 5) = 5
write(9<anon_inode:[eventfd]>, ""..., 8) = 8
write(4</w/repo/x>, ""..., 5) = 5
"""


def test_a_fault_is_at_a_write_to_its_file_however_often_others_are_written_to() -> None:
    opened, _, second = strace.calls(WAKES, "/w")
    everything = strace.calls(WAKES, "/w", names=(*strace.CALLS, "read"))
    only = ["-y", "-s", "0", "-P", "/w/repo/x", "-P", "repo/x"]
    for call, name in ((second, "write"), (opened, "openat")):
        chosen = ["-e", f"trace={name}", "-e", f"inject={name}:error=EIO:when=2"]
        assert strace.fault(call, everything, "error=EIO", "/w") == [*only, *chosen]


def test_a_fault_on_another_file_did_not_reach_its_call() -> None:
    *_, second = strace.calls(WAKES, "/w")
    mine = WAKES + 'write(4</w/repo/x>, ""..., 5) = -1 EIO (Input/output error) (INJECTED)\n'
    other = WAKES + "write(9<anon_inode:[eventfd]>, ...) = -1 EIO (Input/output error) (INJECTED)\n" + WAKES
    killed = 'write(4</w/repo/x>, ""..., 5) = ?\n+++ killed by SIGKILL +++\n'
    assert strace.reached(mine, second, "/w") and strace.reached(killed, second, "/w")
    assert not strace.reached(other, second, "/w") and not strace.reached("", second, "/w")


SYNC = "fsync(3</w/.repo.trb-1/a/file>) = 0\n"


@pytest.mark.parametrize(
    ("between", "lost"),
    [
        ("", {"/w/repo/a/file"}),
        (SYNC, set()),
        (SYNC.replace("= 0", "= -1 EIO (Input/output error)"), {"/w/repo/a/file"}),
        ("syncfs(3</w/.repo.trb-1>) = 0\n", set()),
    ],
)
def test_what_was_not_synced_before_a_rename_is_lost_under_its_new_name(between: str, lost: set[str]) -> None:
    log = (
        'openat(AT_FDCWD</w>, "/w/.repo.trb-1/a/file", O_WRONLY|O_CREAT, 0666) = 3</w/.repo.trb-1/a/file>\n'
        'write(3</w/.repo.trb-1/a/file>, ""..., 4) = 4\n'
        f"{between}"
        'rename("/w/.repo.trb-1/a", "/w/repo/a") = 0\n'
    )
    assert strace.dirty(strace.calls(log, "/w")) == lost


def test_a_state_is_old_new_or_neither() -> None:
    old, step, new = State(files="1"), State(files="2"), State(files="3")
    known = Known(old=old, new=new, passing=(step,), again=frozenset({new}))
    assert [known.name(state) for state in (old, step, new, State(files="4"))] == ["old", "new", "new", ""]
