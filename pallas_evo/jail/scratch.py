"""The one folder that a child may write to: private, watched, and removed whatever is in it."""

from __future__ import annotations

import contextlib
import os
import tempfile


def make() -> str:
    """A new folder that only this user can enter; below $PALLAS_EVO_SCRATCH, where whoever started us removes that."""
    return os.path.realpath(tempfile.mkdtemp(prefix="pallas-evo-", dir=os.environ.get("PALLAS_EVO_SCRATCH")))


def overfull(folder: str, max_bytes: int, max_entries: int) -> bool:
    """Whether the folder holds more than it may; stops counting there."""
    entries = size = 0
    left = [folder]
    while left:
        with contextlib.suppress(OSError), os.scandir(left.pop()) as listing:
            for entry in listing:
                entries += 1
                with contextlib.suppress(OSError):
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                if entries > max_entries or size > max_bytes:
                    return True
    return False


def remove(folder: str) -> None:
    """Remove the folder and all in it, however deep: a nested folder is moved up before it is emptied."""
    moved, token = 0, os.urandom(8).hex()
    try:
        left = [folder]
        while left:
            current = left[-1]
            with contextlib.suppress(OSError):
                os.chmod(current, 0o700)
            inner: list[str] = []
            with os.scandir(current) as listing:
                for entry in listing:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    moved += 1
                    inner.append(entry.path if current == folder else os.path.join(folder, f"{token}-{moved}"))
                    if inner[-1] != entry.path:
                        os.chmod(entry.path, 0o700)
                        os.rename(entry.path, inner[-1])
            if inner:
                left += inner
            else:
                os.rmdir(current)
                left.pop()
    except OSError:
        # A process of an unjailed child may still be writing here; what is left is in the temporary folder.
        pass
