"""Where a run comes from: versions, commit, machine, command, models and data.

Collecting never fails and loads nothing: what cannot be found out is None.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from lenity import __version__
from lenity.workbench.facts import DrafterFacts, TargetFacts
from lenity.workbench.metrics import COUNTERS_VERSION
from lenity.workbench.records import Frozen

ENVIRONMENT = (
    "OMP_WAIT_POLICY",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUBLAS_WORKSPACE_CONFIG",
    "HF_HUB_OFFLINE",
)
"""Variables that change speed or numbers; no other one is stored."""


class Versions(Frozen):
    """Of what computed the numbers."""

    lenity: str
    python: str
    torch: str | None = None
    transformers: str | None = None


class Checkout(Frozen):
    """The commit of lenity's own repository, where it runs from one."""

    sha: str
    """Full hash"""
    is_dirty: bool
    """Whether tracked files differ from it"""


class Hardware(Frozen):
    """The machine, without its name."""

    cpu: str
    """Model"""
    cores: int
    """Logical cores this process may use"""
    gpus: tuple[str, ...] = ()
    """Models, where torch was loaded and sees some"""


class Provenance(Frozen):
    """Everything a number needs to be made again."""

    versions: Versions
    git: Checkout | None = None
    hardware: Hardware
    threads: int | None = None
    """Of torch, where it was loaded"""
    argv: tuple[str, ...] = ()
    """The command as typed; the program by its name alone"""
    environment: dict[str, str] = Field(default_factory=dict)
    """Of ENVIRONMENT, what is set"""
    target: TargetFacts | None = None
    drafters: tuple[DrafterFacts, ...] = ()
    """One for each drafter of the run's arms"""
    template_hash: str | None = None
    """Of the rendering of prompts"""
    data: dict[str, str] = Field(default_factory=dict)
    """Task and version -> revision or hash of its data"""
    counters_version: int = COUNTERS_VERSION
    """Of the definitions in ``metrics``"""

    def deciding(self) -> dict[str, JsonValue]:
        """Return what may not change within one run, whatever machine goes on with it."""
        keys = {"target", "drafters", "template_hash", "data", "counters_version"}
        return self.model_dump(mode="json", include=keys)

    def machine(self) -> dict[str, JsonValue]:
        """Return what times depend on."""
        keys = {"versions", "hardware", "threads", "environment"}
        return self.model_dump(mode="json", include=keys)


def collect(
    *,
    target: TargetFacts | None = None,
    drafters: Sequence[DrafterFacts] = (),
    template_hash: str | None = None,
    data: Mapping[str, str] | None = None,
    argv: Sequence[str] | None = None,
) -> Provenance:
    """Return the provenance of a run that starts now, in this process."""
    return Provenance(
        versions=versions(),
        git=checkout(),
        hardware=hardware(),
        threads=_threads(),
        argv=_as_typed(sys.argv if argv is None else argv),
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
        target=target,
        drafters=tuple(drafters),
        template_hash=template_hash,
        data=dict(data or {}),
    )


def versions() -> Versions:
    """Return the versions installed, without importing anything."""
    return Versions(
        lenity=__version__,
        python=platform.python_version(),
        torch=_version("torch"),
        transformers=_version("transformers"),
    )


def checkout(package: Path | None = None) -> Checkout | None:
    """Return lenity's commit, or None where it is installed rather than checked out.

    A package inside somebody else's repository, in its virtual environment, is not its checkout.
    """
    folder = (package or Path(__file__).parents[1]).resolve()
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() / "src" / "lenity" != folder:
        return None
    sha = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if sha is None or changes is None:
        return None
    return Checkout(sha=sha, is_dirty=bool(changes))


def hardware() -> Hardware:
    """Return CPU, cores and, if torch was loaded, GPUs."""
    return Hardware(cpu=_cpu(), cores=_cores(), gpus=_gpus())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _as_typed(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments as they are, the program without its folder, which nobody typed."""
    return (Path(argv[0]).name, *argv[1:]) if argv else ()


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine() or "unknown"


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        return os.cpu_count() or 1


def _torch() -> Any:
    """Return torch if somebody loaded it: asking for its version must not."""
    return sys.modules.get("torch")


def _threads() -> int | None:
    torch = _torch()
    return int(torch.get_num_threads()) if torch is not None else None


def _gpus() -> tuple[str, ...]:
    torch = _torch()
    if torch is None or not torch.cuda.is_available():
        return ()
    return tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
