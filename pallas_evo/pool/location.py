"""Where the service's socket lies, and who may lie there: one place a user, in a folder that nobody else can enter."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
import tempfile
from pathlib import Path

from pallas_evo.errors import UsageError

VARIABLE = "PALLAS_EVO_SOCKET"
MOST_BYTES = 107  # of a Unix socket's path: sockaddr_un holds 108, with the zero at its end


def default_socket() -> Path | None:
    """`$PALLAS_EVO_SOCKET`, or `judge.sock` in the user's runtime folder, or in one below the temporary folder.

    None where the variable is set and empty: no service is wanted.
    """
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named).absolute() if named else None
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime) / "pallas_evo" / "judge.sock"
    return Path(tempfile.gettempdir()) / f"pallas_evo-{os.getuid()}" / "judge.sock"


def check_length(path: Path) -> None:
    """Refuse a path that no Unix socket can have.

    Raises:
        UsageError: it is too long.
    """
    length = len(os.fsencode(path))
    if length > MOST_BYTES:
        raise UsageError(
            f"{path}: a Unix socket's path has at most {MOST_BYTES} bytes, and this one has {length}. Choose a shorter "
            f"one by --socket, or in {VARIABLE}."
        )


def peer_uid(connection: socket.socket) -> int:
    """The user id of the process at the other end, by the kernel's word."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1])


class Claim:
    """A path that is ours to listen on, from construction until `release`; a lock beside it tells the living from the
    dead.

    Raises:
        UsageError: a server lives there, the folder is not ours alone, or something that is no socket lies there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        check_length(self.path)
        _private_folder(self.path.parent)
        self._lock_path = self.path.with_name(f"{self.path.name}.lock")
        self._lock = _locked(self._lock_path, self.path)
        self._bound: tuple[int, int] | None = None
        try:
            with contextlib.suppress(FileNotFoundError):
                if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                    raise UsageError(f"{self.path}: expected a socket or nothing, and there is a file. Move it away.")
                os.unlink(self.path)  # whoever listened there is dead, or the lock would be held
        except BaseException:
            self.release()
            raise

    def listen(self, backlog: int = 512) -> socket.socket:
        """A socket that listens at the path, with mode 0600."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.bind(str(self.path))
            os.chmod(self.path, 0o600)
            found = os.lstat(self.path)
            self._bound = (found.st_dev, found.st_ino)
            listener.listen(backlog)
        except OSError as error:
            listener.close()
            raise UsageError(f"{self.path}: no socket can be made there ({error.strerror}).") from error
        return listener

    def release(self) -> None:
        """Take away what was made: the socket and the lock. Safe to call again."""
        if self._lock < 0:
            return
        with contextlib.suppress(OSError):
            found = os.lstat(self.path)
            if self._bound == (found.st_dev, found.st_ino) and stat.S_ISSOCK(found.st_mode):
                os.unlink(self.path)
        with contextlib.suppress(OSError):
            os.unlink(self._lock_path)
        os.close(self._lock)
        self._lock = -1


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder) if folder.is_symlink() else os.stat(folder)
    except OSError as error:
        raise UsageError(f"{folder}: the socket's folder cannot be made ({error.strerror}).") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise UsageError(
            f"{folder}: expected a folder that is yours and that nobody else can enter (mode 0700), so that no other "
            f"user can put a socket there. Choose another by --socket or {VARIABLE}, or mend it by chmod 700."
        )


def _locked(lock_path: Path, path: Path) -> int:
    """The lock's descriptor. A lock file that its holder took away meanwhile is not the lock any more."""
    while True:
        try:
            handle = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise UsageError(f"{lock_path}: the socket's lock cannot be made ({error.strerror}).") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                held, there = os.fstat(handle), os.stat(lock_path)
                if (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino):
                    return handle
        except BlockingIOError:
            os.close(handle)
            raise UsageError(
                f"{path}: a judging service is there already. Use it, end it, or give another path by --socket."
            ) from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
