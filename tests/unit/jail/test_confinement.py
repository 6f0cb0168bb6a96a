"""What a jailed process tries, at every level that works here: each attempt is refused."""

from __future__ import annotations

import os
import platform
import secrets
import socket
import tempfile
from pathlib import Path

import pytest
from jailed import assert_nothing_left, levels, run

import pallas_evo

# Each attempt raises, or returns a negative number, where it is refused.
ATTEMPTS = """
import ctypes, mmap, os, resource, signal, socket, struct, subprocess, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def raw(number, *arguments):
    return libc.syscall(number, *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])

def fork():
    if os.fork() == 0:
        os._exit(0)

def setown():
    import fcntl
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETOWN, PARENT)

def setsig():
    import fcntl
    fcntl.fcntl(os.pipe()[0], 10, signal.SIGKILL)

def raise_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def tmpfile():
    return os.open(os.environ["HOME"], os.O_TMPFILE | os.O_RDWR)

def clone3():
    buffer = ctypes.create_string_buffer(88)
    pid = raw(435, buffer, 88)
    if pid == 0:
        os._exit(0)
    return pid

def listen():
    server = socket.socket()
    server.bind(("127.0.0.1", 0))

ATTEMPTS = {
    "fork": fork,
    "vfork": lambda: raw(58),
    "clone": lambda: raw(56, 17, 0, 0, 0, 0),
    "clone3": clone3,
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "subprocess": lambda: subprocess.run(["/bin/true"]),
    "system": lambda: -1 if os.system("true") else 0,
    "posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "connect": lambda: socket.create_connection(("127.0.0.1", LISTENER_PORT), 1),
    "listen": listen,
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "netlink": lambda: socket.socket(16, 3, 0),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    "socketpair": lambda: socket.socketpair(),
    "vsock": lambda: socket.socket(40, 1, 0),
    "alg": lambda: socket.socket(38, 5, 0),
    "parent's environment": lambda: open(f"/proc/{PARENT}/environ", "rb").read(),
    "parent's memory": lambda: open(f"/proc/{PARENT}/mem", "rb"),
    "parent's descriptors": lambda: os.listdir(f"/proc/{PARENT}/fd"),
    "parent's command line": lambda: open(f"/proc/{PARENT}/cmdline", "rb").read(),
    "first process": lambda: open("/proc/1/environ", "rb").read(),
    "getppid's environment": lambda: open(f"/proc/{os.getppid()}/environ", "rb").read(),
    "list /proc": lambda: os.listdir("/proc"),
    "kernel log": lambda: open("/dev/kmsg"),
    "home listing": lambda: os.listdir(HOME_FOLDER),
    "home file": lambda: open(HOME_CANARY).read(),
    "home through root": lambda: open("/proc/self/root" + HOME_CANARY).read(),
    "home through cwd": lambda: open("/proc/self/cwd/../.." + HOME_CANARY).read(),
    "shadow": lambda: open("/etc/shadow").read(),
    "passwd": lambda: open("/etc/passwd").read(),
    "references": lambda: open(PACKAGE + "/tasks/references.py").read(),
    "seeds": lambda: os.listdir(PACKAGE + "/../seeds"),
    "package folder's neighbours": lambda: os.listdir(PACKAGE + "/.."),
    "write in temporary folder": lambda: open(OUTSIDE, "w"),
    "write in /dev/shm": lambda: open("/dev/shm/" + NAME, "w"),
    "write in home": lambda: open(HOME_FOLDER + "/" + NAME, "w"),
    "write in /var/tmp": lambda: open("/var/tmp/" + NAME, "w"),
    "write in packages": lambda: open(os.path.dirname(os.__file__) + "/" + NAME, "w"),
    "append to a file outside": lambda: open(VICTIM, "a"),
    "chmod": lambda: os.chmod(VICTIM, 0o777),
    "chown": lambda: os.chown(VICTIM, 1, 1),
    "utime": lambda: os.utime(VICTIM, (0, 0)),
    "truncate": lambda: os.truncate(VICTIM, 0),
    "unlink": lambda: os.unlink(VICTIM),
    "rename": lambda: os.rename(VICTIM, VICTIM + "2"),
    "setxattr": lambda: os.setxattr(VICTIM, "user.x", b"1"),
    "hard link": lambda: os.link(VICTIM, "mine"),
    "symlink": lambda: os.symlink("/etc", "mine"),
    "mknod": lambda: os.mknod("device", 0o600 | 0o020000, os.makedev(1, 1)),
    "fifo": lambda: os.mkfifo("fifo"),
    "unlinked file": tmpfile,
    "kill parent": lambda: os.kill(PARENT, 0),
    "kill group": lambda: os.kill(0, 0),
    "kill all": lambda: os.kill(-1, 0),
    "killpg": lambda: os.killpg(PARENT, 0),
    "tgkill parent": lambda: raw(234, PARENT, PARENT, 0),
    "pidfd": lambda: os.pidfd_open(PARENT),
    "sigqueue": lambda: raw(129, PARENT, 0, ctypes.create_string_buffer(128)),
    "F_SETOWN": setown,
    "F_SETSIG": setsig,
    "ptrace": lambda: libc.ptrace(16, PARENT, 0, 0),
    "process_vm_readv": lambda: raw(310, PARENT, 0, 0, 0, 0, 0),
    "survive the parent": lambda: libc.prctl(1, 0, 0, 0, 0),
    "dumpable": lambda: libc.prctl(4, 0, 0, 0, 0),
    "setsid": lambda: os.setsid(),
    "setpgid": lambda: os.setpgid(0, 0),
    "raise a limit": raise_limit,
    "limit the parent": lambda: resource.prlimit(PARENT, resource.RLIMIT_CPU, (1, 1)),
    "priority of the parent": lambda: os.setpriority(os.PRIO_PROCESS, PARENT, 19),
    "affinity of the parent": lambda: os.sched_setaffinity(PARENT, {0}),
    "shared memory": lambda: raw(29, 0, 4096, 0o1600),
    "message queue": lambda: raw(68, 0, 0o1600),
    "semaphore": lambda: raw(64, 0, 1, 0o1600),
    "posix queue": lambda: raw(240, b"/" + NAME.encode(), 0o102, 0o600, 0),
    "keyring": lambda: raw(250, 0, -4, 1),
    "add_key": lambda: raw(248, b"user", b"x", b"y", 1, -4),
    "memfd": lambda: os.memfd_create("x"),
    "io_uring": lambda: raw(425, 1, ctypes.create_string_buffer(120)),
    "bpf": lambda: raw(321, 0, ctypes.create_string_buffer(120), 120),
    "perf": lambda: raw(298, ctypes.create_string_buffer(120), 0, -1, -1, 0),
    "userfaultfd": lambda: raw(323, 1),
    "unshare": lambda: raw(272, 0x10000000),
    "setns": lambda: raw(308, 0, 0),
    "mount": lambda: raw(165, b"none", b"/", b"tmpfs", 0, 0),
    "chroot": lambda: os.chroot("."),
    "setuid": lambda: os.setuid(1),
    "open by handle": lambda: raw(303, -100, b"/", ctypes.create_string_buffer(128), ctypes.create_string_buffer(8), 0),
    "personality": lambda: raw(135, 0x0040000),
    "inotify": lambda: raw(253),
    "capset": lambda: raw(126, 0, 0),
}
for what, attempt in ATTEMPTS.items():
    try:
        answer = attempt()
    except (OSError, ValueError):
        continue
    except BaseException as error:
        print("ODD", what, type(error), error)
        continue
    if not (isinstance(answer, int) and answer < 0):
        print("ALLOWED:", what, repr(answer)[:80])
print("TRIED", len(ATTEMPTS))
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers of system calls are x86-64's")
@levels
def test_every_attempt_is_refused(level, tmp_path):
    name = "pallas-evo-test-" + secrets.token_hex(6)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o640)
    canary = Path.home() / name
    outside = Path(tempfile.gettempdir()) / name
    values: dict[str, object] = {
        "PARENT": os.getpid(),
        "HOME_FOLDER": str(Path.home()),
        "HOME_CANARY": str(canary),
        "PACKAGE": str(Path(pallas_evo.__file__).parent),
        "OUTSIDE": str(outside),
        "VICTIM": str(victim),
        "NAME": name,
    }
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.01)
        values["LISTENER_PORT"] = listener.getsockname()[1]
        head = "".join(f"{key} = {value!r}\n" for key, value in values.items())
        canary.write_text("canary")
        try:
            ran = run(head + ATTEMPTS, level, deadline_s=20)
        finally:
            canary.unlink()
        with pytest.raises(TimeoutError):
            listener.accept()
    assert [line for line in ran.output_text.splitlines() if line.startswith(("ALLOWED", "ODD"))] == []
    assert "TRIED 90" in ran.output_text  # all of them, with nothing that ended the process on the way
    assert victim.read_text() == "mine"
    assert victim.stat().st_mode & 0o777 == 0o640
    assert not outside.exists()
    assert not (Path("/dev/shm") / name).exists()
    assert_nothing_left(ran)


@levels
def test_environment_and_descriptors_hold_nothing_of_the_callers(level, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "canary-key")
    monkeypatch.setenv("LD_PRELOAD_CANARY", "canary-other")
    kept = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(kept, True)
    code = """
import os
print(open("/proc/self/environ").read(), dict(os.environ))
kinds = []
for fd in os.listdir("/proc/self/fd"):
    try:
        kinds.append(os.readlink(f"/proc/self/fd/{fd}").split(":")[0])
    except OSError:
        pass  # the one that listed the folder
print("FDS", *sorted(kinds))
"""
    ran = run(code, level)
    os.close(kept)
    assert "canary" not in ran.output_text
    assert "PYTHONHASHSEED" in ran.output_text
    kinds = ran.output_text.rsplit("FDS ", 1)[1].split()
    assert kinds == ["/dev/null", "pipe", "pipe", "pipe", "pipe"]  # stdin, stdout, stderr, and one each way


@levels
def test_jax_numpy_and_threads_work_and_the_scratch_folder_is_writable(level):
    code = """
import os, pathlib, tempfile, threading
import numpy
folder = pathlib.Path(os.environ["HOME"])
(folder / "inner").mkdir()
(folder / "inner" / "file").write_text("x" * 1000)
with tempfile.NamedTemporaryFile(delete=False) as file:
    file.write(b"1")
worker = threading.Thread(target=lambda: print("THREAD", float(numpy.arange(10).sum())))
worker.start(); worker.join()
import jax.numpy as jnp
print("JAX", float(jnp.arange(10.0).sum()), os.getcwd() == str(folder), oct(os.stat(folder).st_mode & 0o777))
"""
    ran = run(code, level, deadline_s=30)
    assert "THREAD 45.0" in ran.output_text
    assert "JAX 45.0 True 0o700" in ran.output_text
    assert_nothing_left(ran)


@levels
def test_root_has_no_powers_left_and_limits_are_set(level):
    code = """
import resource
wanted = ("CapEff", "CapPrm", "Seccomp:", "NoNewPrivs")
print([line.split()[1] for line in open("/proc/self/status") if line.startswith(wanted)])
print(resource.getrlimit(resource.RLIMIT_CORE), resource.getrlimit(resource.RLIMIT_AS)[1] == 3 << 30,
      resource.getrlimit(resource.RLIMIT_FSIZE)[1])
"""
    ran = run(code, level, memory_bytes=3 << 30, file_bytes=12345)
    assert "['0000000000000000', '0000000000000000', '1', '2']" in ran.output_text
    assert "(0, 0) True 12345" in ran.output_text
