"""The command line that starts a child in namespaces of its own, where bubblewrap works.

Bubblewrap adds what Landlock and seccomp can't give: other processes and other files are not there at all, and the
whole pid namespace ends with its first process. Landlock and seccomp are applied inside as well.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from pallas_evo.jail import folders


def executable() -> str | None:
    """bwrap's path, or None."""
    return shutil.which("bwrap")


def command(bwrap: str, needed: Sequence[str], scratch: str) -> list[str]:
    """bwrap and its options; the program's own command line follows.

    Args:
        bwrap: path of the program.
        needed: files and folders of ours that the child reads, beside the interpreter and the installed packages.
        scratch: the one folder that the child may write to.
    """
    interpreter = folders.interpreter()
    line = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--hostname", "jail", "--cap-drop", "ALL"]
    for root in interpreter.roots:
        line += ["--ro-bind", root, root]
    for packages in interpreter.path:
        # Where this package is installed among the others, its seeds and references must not be there.
        line += ["--tmpfs", f"{packages}/pallas_evo"] if (folders.PACKAGE.parent.as_posix() == packages) else []
    for file in ("/etc/ld.so.cache", "/etc/localtime", "/sys/devices/system/cpu"):
        line += ["--ro-bind-try", file, file]
    for device in ("/dev/null", "/dev/urandom"):
        line += ["--dev-bind", device, device]
    line += ["--proc", "/proc"]
    for path in dict.fromkeys(needed):
        line += ["--ro-bind-try", path, path]
    line += ["--bind", scratch, scratch, "--remount-ro", "/", "--chdir", scratch, "--"]
    return line
