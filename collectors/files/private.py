"""Folders and files of our own, for their owner alone: the spool, its state, the embedded database."""

from __future__ import annotations

import os
import stat
from pathlib import Path

WRITABLE_BY_ALL = 0o002
SUPERUSER = 0


class NotPrivate(OSError):
    """A folder in which another user may put or replace files; the message says whose it is and what to do."""


def check_folder(folder: Path, *, owners: frozenset[int] = frozenset()) -> None:
    """Raise ``NotPrivate`` unless the folder is this user's or root's and not writable by all.

    ``owners``: further users that may own it. Root is trusted: it can read and replace everything anyway.
    """
    found = folder.stat()
    if found.st_uid not in {os.geteuid(), SUPERUSER} | owners:
        raise NotPrivate(
            f"folder {folder} belongs to user {found.st_uid}, who could replace what user {os.geteuid()} writes there: "
            f"run `chown {os.geteuid()} {folder}`, or choose another folder"
        )
    if stat.S_IMODE(found.st_mode) & WRITABLE_BY_ALL:
        raise NotPrivate(
            f"folder {folder} may be written by every user (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"run `chmod o-w {folder}`, or choose a folder below it"
        )


def opened(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as ``open(…, opener=opened)`` asks: only its owner may read it, whatever the umask."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def make_private(path: Path) -> None:
    """Make an empty file that only its owner may read, or take an existing one of ours from everyone else."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    found = path.stat()
    if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o600)
