"""The child of ``sandbox``: shuts itself in, runs the parts of a job, reports how that ended.

Run as a script; it imports the standard library only. What is set up, as far as the system permits,
and named in the report:

* ``namespaces``: user, network, process and IPC namespaces: no network, and no process survives.
* ``landlock``: the kernel refuses writes outside the folder, starting programs, and TCP.
* ``limits``: CPU time, address space, file size, processes, open files.
* ``guard``: an audit hook that refuses the same things inside Python; always there.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_NEWUSER, _NEWPID, _NEWNET, _NEWIPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000

_REFUSED_EVENTS = frozenset(
    {
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.kill",
        "os.killpg",
        "os.posix_spawn",
        "os.spawn",
        "os.system",
        "pty.spawn",
        "signal.pthread_kill",
        "subprocess.Popen",
    }
)
# making a socket is harmless, and asyncio makes a pair of them; using one is not
_HARMLESS_SOCKETS = frozenset({"socket.__new__", "socket.gethostname"})
_PATH_EVENTS = {
    "os.chmod": 1,
    "os.chown": 1,
    "os.link": 2,
    "os.mkdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.rmdir": 1,
    "os.setxattr": 1,
    "os.removexattr": 1,
    "os.symlink": 2,
    "os.truncate": 1,
    "os.utime": 1,
}
"""Events whose first so many arguments are paths that must be inside the folder."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    """Run the job whose file is named on the command line; leave no other way of success."""
    job_file = Path(sys.argv[1])
    job = json.loads(job_file.read_text(encoding="utf-8"))
    job_file.unlink()
    sys.argv = ["solution.py"]
    report = reporter(job["report"], job["nonce"])
    isolation = shut_in(job["limits"], job["cpu_seconds"], Path.cwd())
    report({"isolation": isolation})
    ending = run(job["parts"], lambda label: report({"start": label}))
    report(ending)
    # no exit handlers, no other threads: the report was the last thing to happen
    os._exit(0)


def reporter(descriptor: int, nonce: str) -> Callable[[dict[str, Any]], None]:
    """Return what writes a line to the parent, which believes only lines with the nonce."""

    def report(said: dict[str, Any]) -> None:
        line = f"{nonce} {json.dumps(said)}\n".encode()
        while line:
            line = line[os.write(descriptor, line) :]

    return report


def run(parts: list[dict[str, Any]], begin: Callable[[str], None]) -> dict[str, Any]:
    """Return how the parts ended: passed, or the first that did not, and why."""
    namespaces: dict[str, dict[str, Any]] = {}
    for part in parts:
        begin(part["label"])
        name = part["namespace"]
        # not __main__, so that a block for scripts, which may wait for input, does not run
        scope = namespaces.setdefault(name, {"__name__": name})
        if name == "tests":
            scope["namespaces"] = namespaces
        try:
            exec(compile(part["code"], f"<part {part['label']}>", "exec"), scope)
        except BaseException as error:
            return {"outcome": outcome_of(error), "detail": describe(error)}
        with suppress(Exception):  # the code may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()
    return {"outcome": "passed", "detail": ""}


def outcome_of(error: BaseException) -> str:
    """Return what kind of ending an exception is."""
    if isinstance(error, AssertionError):
        return "failed"
    return "exited" if isinstance(error, SystemExit) else "error"


def describe(error: BaseException) -> str:
    """Return an exception in one line, with the line of the part it was raised in."""
    try:
        text = " ".join(str(error).split())[:200]
        frames = traceback.extract_tb(error.__traceback__)
        at = [f.lineno for f in frames if f.filename.startswith("<part ")]
    except BaseException:  # what the code raised may refuse to be printed
        return type(error).__name__
    where = f" (line {at[-1]})" if at else ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{where}"


def shut_in(limits: dict[str, int], cpu_seconds: int, folder: Path) -> list[str]:
    """Set up everything the system permits; return the names of what is in force."""
    inside = [found] if (found := enter_namespaces()) else []
    if limit(limits, cpu_seconds):
        inside.append("limits")
    if enter_landlock(folder):
        inside.append("landlock")
    install_guard(folder)
    return [*inside, "guard"]


def enter_namespaces() -> str:
    """Move into namespaces without a network, and go on as their first process, if permitted.

    Returns what was entered, or nothing. Where the system keeps us from naming an owner in the new
    user namespace, no file can be made in it.
    """
    unshare = getattr(_libc(), "unshare", None)
    if unshare is None:
        return ""
    user_id, group_id = os.getuid(), os.getgid()
    flags, entered = _NEWPID | _NEWNET | _NEWIPC, "namespaces"
    if unshare(_NEWUSER | flags) == 0:
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user_id} {user_id} 1")
            Path("/proc/self/gid_map").write_text(f"{group_id} {group_id} 1")
        except OSError:
            entered = "namespaces without files"
    elif unshare(flags) != 0:
        return ""
    child = os.fork()
    if child:
        _wait_and_leave(child)
    _call("prctl", 1, signal.SIGKILL)  # PR_SET_PDEATHSIG: do not outlive the one who waits
    return entered


def _wait_and_leave(child: int) -> None:
    """End as the child ended."""
    for descriptor in (0, 1, 2):
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler to take back
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


def limit(limits: dict[str, int], cpu_seconds: int) -> bool:
    """Set resource limits; return whether all were taken (macOS refuses some)."""
    wanted = {
        resource.RLIMIT_CPU: cpu_seconds,
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_CORE: 0,
    }
    complete = True
    for what, amount in wanted.items():
        try:
            _, hard = resource.getrlimit(what)
            least = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
            resource.setrlimit(what, (least, least))
        except (ValueError, OSError):
            complete = False
    return complete


def install_guard(folder: Path) -> None:
    """Refuse, inside Python, network, processes and writes outside the folder, for good."""
    root = os.path.realpath(folder)

    def is_inside(path: Any) -> bool:
        if isinstance(path, int):  # an open descriptor: that it is open was judged before
            return True
        full = os.path.realpath(os.fsdecode(path))
        return full == root or full.startswith(root + os.sep) or full == os.devnull

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITING and not is_inside(path):
                raise PermissionError(f"writing to {path!r} is not allowed here")
        elif event in _REFUSED_EVENTS or (
            event.startswith("socket.") and event not in _HARMLESS_SOCKETS
        ):
            raise PermissionError(f"{event} is not allowed here")
        elif event in _PATH_EVENTS and not all(map(is_inside, arguments[: _PATH_EVENTS[event]])):
            raise PermissionError(f"{event} outside the folder is not allowed")

    sys.addaudithook(guard)
    _close_unheard_door()


def _close_unheard_door() -> None:
    """Refuse the one way of starting programs that raises no event: multiprocessing's."""
    import _posixsubprocess

    def refuse(*_: Any) -> int:
        raise PermissionError("starting a program is not allowed here")

    vars(_posixsubprocess)["fork_exec"] = refuse


# ---------------------------------------------------------------------------------------- landlock

_WRITE_RIGHTS = 0x7FF2
"""Of files below the folder: write, truncate, make, remove, rename across folders."""
_EXECUTE = 0x1


def enter_landlock(folder: Path) -> bool:
    """Have the kernel refuse writes outside the folder, programs and TCP, if it knows how."""
    version = _call("syscall", 444, None, 0, 1)
    if version < 1:
        return False
    beyond = {1: 0x6000, 2: 0x4000}.get(version, 0)  # REFER came with 2, TRUNCATE with 3
    rights = _WRITE_RIGHTS & ~beyond
    # handled_access_fs, handled_access_net (bind and connect, from 4), scoped (from 6)
    attributes = [rights | _EXECUTE, 0x3 if version >= 4 else 0, 0x3 if version >= 6 else 0]
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _call("syscall", 444, (ctypes.c_uint64 * 3)(*attributes), size, 0)
    if ruleset < 0:
        return False
    try:
        added = _allow(ruleset, str(folder), rights)
        _allow(ruleset, os.devnull, rights & 0x4002)  # files have no right but write and truncate
        _call("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        return added and _call("syscall", 446, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> bool:
    """Give rights to what is below a path; the kernel's struct is packed: 8 bytes, then 4."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = rights.to_bytes(8, sys.byteorder) + descriptor.to_bytes(4, sys.byteorder)
        return _call("syscall", 445, ruleset, 1, rule, 0) == 0
    finally:
        os.close(descriptor)


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> int:
    """Return what a C function returns; -1 where this system has none of that name."""
    function = getattr(_libc(), name, None) if sys.platform == "linux" else None
    if function is None:
        return -1
    long = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return int(function(*long))


if __name__ == "__main__":
    main()
