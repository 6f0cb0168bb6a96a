"""What a child does to itself before it runs anything that it was not born with: limits, Landlock, seccomp.

No namespace and no privilege is needed. The order matters: pyseccomp is imported first (it looks for its library),
then capabilities are dropped, then Landlock, then seccomp. Only the standard library, landlock and pyseccomp are used.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import errno
import os
import resource
import signal
from collections.abc import Sequence
from typing import Any

from pallas_evo.jail import syscalls

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522


def die_with_parent(parent_pid: int | None) -> None:
    """Ask the kernel for SIGKILL when the parent ends; end now when it already has.

    `parent_pid` is None in a pid namespace of our own, where the parent is the namespace's first process.
    """
    _libc().prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent_pid is not None and os.getppid() != parent_pid:
        os._exit(1)


def set_limits(limits: dict[str, int | None]) -> None:
    """Apply rlimits by their lower-case names ("as", "cpu", "fsize", ...), never above the hard limit we came with."""
    for name, value in limits.items():
        if value is None:
            continue
        which = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # At its soft limit of CPU time a process gets SIGXCPU, which says why it ended; at the hard one, SIGKILL.
        soft = value - 1 if name == "cpu" and value > 1 else value
        resource.setrlimit(which, (soft, value))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # if the machine runs out of memory, this process is the one to go


def import_seccomp() -> Any:
    """pyseccomp, without the helper processes that it would start to find its library."""
    find_library = ctypes.util.find_library

    def known_name(name: str) -> str | None:
        for soname in {"c": ("libc.so.6",), "seccomp": ("libseccomp.so.2",)}.get(name, ()):
            with contextlib.suppress(OSError):
                ctypes.CDLL(soname)
                return soname
        return find_library(name)

    ctypes.util.find_library = known_name
    try:
        import pyseccomp
    finally:
        ctypes.util.find_library = find_library
    return pyseccomp


def drop_capabilities() -> None:
    """Give up root's powers, where there are any: a file's owner and mode hold for us as for anyone else."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    if _libc().capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def restrict_files(readable: Sequence[str], listable: Sequence[str], scratch: str) -> None:
    """Landlock: read `readable` (files, or folders with all beneath), list `listable`, write beneath `scratch` only.

    In the scratch folder nothing can be removed or renamed, so that what a process wrote there can be counted.
    """
    import landlock

    access = landlock.FSAccess
    ctypes.set_errno(0)
    rules = landlock.Ruleset()
    for path in readable:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            rules.allow(path, rules=access.READ_FILE | (access.READ_DIR if os.path.isdir(path) else access(0)))
    for path in listable:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            rules.allow(path, rules=access.READ_DIR)
    rules.allow("/dev/null", rules=access.READ_FILE | access.WRITE_FILE)
    write = access.READ_FILE | access.WRITE_FILE | access.READ_DIR | access.MAKE_REG | access.MAKE_DIR
    rules.allow(scratch, rules=(write | access.TRUNCATE) & access.all())
    rules.apply()
    os.close(rules._fd)


def restrict_calls(seccomp: Any) -> None:
    """seccomp: the allow-list of `syscalls.py`. Threads stay possible; processes, sockets and signals to others not."""
    calls = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    refuse = seccomp.ERRNO(errno.EPERM)
    architecture = seccomp.system_arch()

    def rule(action: int, name: str, *arguments: Any) -> None:
        # Negative numbers are libseccomp's names for what this architecture does not have.
        with contextlib.suppress(OSError):
            if seccomp.resolve_syscall(architecture, name) >= 0:
                calls.add_rule(action, name, *arguments)

    def only(name: str, position: int, values: Sequence[int]) -> None:
        for value in values:
            rule(seccomp.ALLOW, name, seccomp.Arg(position, seccomp.MASKED_EQ, 0xFFFFFFFF, value))

    for name in syscalls.ALLOWED.split():
        rule(seccomp.ALLOW, name)
    for name in syscalls.REFUSED.split():
        rule(refuse, name)
    thread = syscalls.CLONE_THREAD
    rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, thread, thread))
    rule(refuse, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, thread, 0))
    # clone3 hides its flags behind a pointer; with ENOSYS, libc falls back to clone.
    for name, position in (("open", 1), ("openat", 2)):
        rule(seccomp.ALLOW, name, seccomp.Arg(position, seccomp.MASKED_EQ, syscalls.O_TMPFILE, 0))
    only("kill", 0, (os.getpid(),))
    only("tgkill", 0, (os.getpid(),))
    only("prlimit64", 0, (0,))
    only("fcntl", 1, syscalls.FCNTL_COMMANDS)
    only("ioctl", 1, syscalls.IOCTL_COMMANDS)
    only("prctl", 0, syscalls.PRCTL_COMMANDS)
    calls.load()


def confine(readable: Sequence[str], listable: Sequence[str], scratch: str) -> None:
    """Shut this process in, for good. Must run before any thread is started."""
    seccomp = import_seccomp()
    import landlock  # noqa: F401 -- its files are out of reach a moment later

    _libc().prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    drop_capabilities()
    restrict_files(readable, listable, scratch)
    restrict_calls(seccomp)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
