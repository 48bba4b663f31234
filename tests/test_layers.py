"""The shape of the repository: who imports whom, what mirrors what, how long things are."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "lenity"
MODULES = sorted(SRC.rglob("*.py"))

PURE = (
    "errors",
    "ledger",
    "policies",
    "processors",
    "sampling",
    "scoring",
    "skipping",
    "trees",
    "types",
)
"""Rules on tensors: they know no model, and run wherever torch runs."""
PURE_IMPORTS = {"jaxtyping", "lenity", "numpy", "pydantic", "torch"}

HEAVY = ("transformers", "matplotlib", "plotly", "vllm", "datasets", "gguf", "typer")


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_imports_go_one_way():
    _run(str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache")


def test_no_package_is_a_namespace():
    folders = {file.parent for file in MODULES}
    bare = sorted(_name(folder) for folder in folders if not (folder / "__init__.py").is_file())
    assert not bare, f"without __init__.py the layers contract does not see into {bare}"


def test_nothing_inside_imports_public_names_from_the_package():
    pattern = re.compile(
        r"^\s*from lenity import (?!__version__$)|^\s*import lenity$", re.MULTILINE
    )
    found = [_name(f) for f in MODULES if pattern.search(f.read_text())]
    assert not found, f"Import from the module that defines it: {found}"


def test_files_and_functions_fit():
    _run(sys.executable, "scripts/check_sizes.py", "src")


def _imported_roots(file: Path) -> set[str]:
    roots = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.partition(".")[0])
    return roots - set(sys.stdlib_module_names)


def test_rules_import_tensors_only():
    found = {
        _name(file): sorted(strangers)
        for file in MODULES
        if file.relative_to(SRC).with_suffix("").parts[0] in PURE
        and (strangers := _imported_roots(file) - PURE_IMPORTS)
    }
    assert not found


def test_import_lenity_is_light():
    probe = (
        "import sys, lenity\n"
        f"loaded = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        "sys.exit(f'import lenity imports {loaded}' if loaded else 0)"
    )
    _run(sys.executable, "-c", probe)


def _has_a_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether there is more than a docstring, ``...`` or ``pass``: something to test."""
    return not all(
        isinstance(line, ast.Pass)
        or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
        for line in function.body
    )


def _is_testable(file: Path) -> bool:
    nodes = ast.walk(ast.parse(file.read_text()))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return file.stem not in ("__init__", "__main__") and any(map(_has_a_body, functions))


def test_tests_mirror_the_source_file_for_file():
    missing = []
    for file in filter(_is_testable, MODULES):
        place = file.relative_to(SRC)
        mirror = ROOT / "tests" / place.with_name(f"test_{place.name}")
        if not mirror.is_file():
            missing.append(f"{_name(mirror)} (for {_name(file)})")
    assert not missing, "missing:\n" + "\n".join(missing)


def test_no_module_without_a_subject():
    nameless = {"utils", "util", "helpers", "common", "core", "misc"}
    named = [_name(f) for f in MODULES if nameless & set(f.relative_to(SRC).with_suffix("").parts)]
    assert not named, f"A helper lives with its noun: {named}"


def test_library_code_has_no_global_randomness():
    pattern = re.compile(
        r"\btorch\.(manual_seed|seed|set_rng_state)\(|\bnp\.random\.seed\(|\brandom\.seed\("
    )
    seeded = [_name(f) for f in MODULES if pattern.search(f.read_text())]
    assert not seeded, f"Every draw takes a generator: {seeded}"


PROSE = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
TOP = ("src", "tests", "docs", "examples", "benchmarks", "scripts", ".ci")


@pytest.mark.parametrize("file", PROSE, ids=_name)
def test_paths_in_prose_exist(file: Path):
    text = file.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
    quoted = re.findall(rf"`((?:{'|'.join(map(re.escape, TOP))})/[\w./-]*)`", text)
    gone = [p for p in links if not (file.parent / p).exists()]
    gone += [p for p in quoted if "NAME" not in p and not (ROOT / p).exists()]
    assert not gone, f"{_name(file)} names what is not there: {gone}"


def _tree_paths(text: str) -> list[str]:
    """Return the paths at the line starts of the README's tree, indented by two spaces a level."""
    block = re.search(r"^```\w*\n(src/lenity/\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    paths, parents = [], []
    for line in block[1].splitlines() if block else []:
        if entry := re.match(r"( *)([\w.-]+(?:/[\w.-]+)*/?)(?:\s|$)", line):
            depth = len(entry[1]) // 2
            parents = [*parents[:depth], entry[2].rstrip("/")]
            paths.append("/".join(parents))
    return paths


def test_the_readme_tree_is_there():
    readme = ROOT / "README.md"
    gone = [p for p in _tree_paths(readme.read_text()) if not (ROOT / p).exists()]
    assert not gone, f"README.md draws what is not there: {gone}"
