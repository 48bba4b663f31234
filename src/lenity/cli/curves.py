"""What ``lenity doctor --curves`` measures, predicts from it, and measures again to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lenity.cli.terminal import working
from lenity.errors import ConfigError

if TYPE_CHECKING:
    from lenity.drafters.base import Drafter
    from lenity.engine.curves import CostCurves
    from lenity.models.base import LanguageModel

PROMPTS = 4
TOKENS = 48
"""Tokens per answer of the trial, end-of-sequence ignored."""
GAMMA = 5
"""Draft tokens per round of the trial where neither the user nor the drafter says a number."""
SUPPOSED = (0.5, 0.6, 0.7, 0.8, 0.9)
"""Conditional acceptances tabled where none is known."""


def read_acceptance(written: str) -> list[float]:
    """Return conditional acceptance by position from ``0.8,0.7,0.6``. Raises ConfigError."""
    try:
        found = [float(part) for part in written.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= share <= 1 for share in found):
        raise ConfigError(
            f"Expected conditional acceptances between 0 and 1, first position first, such as "
            f"0.8,0.7,0.6, got {written!r}. One number alone holds for every position."
        )
    return found


def examine_curves(
    target: LanguageModel,
    drafter: str | None,
    *,
    gamma: int | None = None,
    acceptance: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return measured costs, the file they were saved to, and what they predict.

    With a drafter and no ``acceptance``, a short trial measures it, and the real speed beside.
    """
    from lenity.drafters import drafter as drafter_named
    from lenity.engine.timing import curves_file, measure_curves
    from lenity.models.packaged import cache_dir

    drafts = None if drafter is None else drafter_named(drafter)
    longest = None if drafts is None else drafts.describe(target).get("draft_length")
    with working("Timing target passes and drafts"):
        curves = measure_curves(target, drafts, max_draft_length=longest)
    file = curves_file(cache_dir(), curves)
    curves.write(file)
    report: dict[str, Any] = {
        "file": str(file),
        "is_noisy": curves.is_noisy,
        "costs": curves.model_dump(mode="json"),
    }
    known = None if acceptance is None else list(acceptance)
    if known is not None and len(known) == 1:
        known = known * curves.max_gamma
    share, trial = 1.0, None
    if known is None and drafts is not None:
        trial = _trial(target, drafts, min(gamma or longest or GAMMA, curves.max_gamma))
        known, share = trial["conditional"], trial["drafting_share"]
    report |= _supposed(curves) if known is None else _predictions(curves, known, share)
    if trial is not None and known is not None:
        report["trial"] = trial | {"predicted": _speedup(curves, known, trial["gamma"], share)}
    return report


def _speedup(curves: CostCurves, conditional: Sequence[float], gamma: int, share: float) -> float:
    from lenity.engine.curves import predict_speedup

    return predict_speedup(curves, conditional, gamma, drafting_share=share)


def _trial(target: LanguageModel, drafter: Drafter, gamma: int) -> dict[str, Any]:
    """Return acceptance and speed over plain decoding on a few prompts, arms taking turns."""
    from lenity.cli.figures import ratio
    from lenity.cli.own_prompts import own_prompts
    from lenity.cli.trial import Arm, take_turns
    from lenity.engine.acceptance import Acceptance
    from lenity.engine.decode import Decoder
    from lenity.requests import GenerationSettings

    prompts, words = own_prompts(target, PROMPTS)
    plain = Arm(name="plain", decoder=Decoder(target=target))
    strict = Arm(name="strict", decoder=Decoder(target=target, drafter=drafter))
    settings = GenerationSettings(max_new_tokens=TOKENS, gamma=gamma, ignore_eos=True)
    with working("Measuring acceptance and speed"):
        take_turns([plain, strict], prompts, settings)
    found = Acceptance.of_generations(strict.generations)
    return {
        "prompts": words,
        "gamma": gamma,
        "conditional": list(found.conditional),
        "drafting_share": found.drafting_share,
        "tokens_per_target_pass": strict.totals.tokens_per_target_pass,
        "measured": ratio(strict.totals.tokens_per_second, plain.totals.tokens_per_second),
    }


def _predictions(curves: CostCurves, conditional: list[float], share: float) -> dict[str, Any]:
    from lenity.engine.curves import expected_tokens, predict_speedup, recommend

    longest = min(curves.max_gamma, len(conditional))
    rows = [
        {
            "batch": batch,
            "gamma": gamma,
            "tokens": expected_tokens(conditional, gamma, drafting_share=share),
            "speedup": predict_speedup(
                curves, conditional, gamma, batch=batch, drafting_share=share
            ),
        }
        for batch in curves.batches
        for gamma in range(1, longest + 1)
    ]
    advice = [
        recommend(curves, conditional, batch=batch, drafting_share=share)
        for batch in curves.batches
    ]
    return {
        "conditional": conditional,
        "drafting_share": share,
        "predictions": rows,
        "advice": [{"batch": a.batch, "gamma": a.gamma, "speedup": a.speedup} for a in advice],
    }


def _supposed(curves: CostCurves) -> dict[str, Any]:
    """Return the best gamma for each of some acceptances, the same at every position."""
    from lenity.engine.curves import recommend

    found = {
        level: [recommend(curves, [level] * curves.max_gamma, batch=b) for b in curves.batches]
        for level in SUPPOSED
    }
    return {
        "supposed": [
            {"acceptance": level, "batch": a.batch, "gamma": a.gamma, "speedup": a.speedup}
            for level, advice in found.items()
            for a in advice
        ]
    }


def print_curves(console: Console, report: Mapping[str, Any]) -> None:
    """Print costs, predictions and the recommendation."""
    costs = report["costs"]
    console.print(Text("curves", "bold"))
    console.print(
        Text(
            f"  {costs['target']}, {costs['dtype']}, {costs['device']}, {costs['threads']} "
            f"threads, behind {costs['context']} tokens; medians of {costs['repeats']} in ms, "
            f"sizes taking turns. Saved to {report['file']}"
        )
    )
    console.print(Text("\nTarget pass, ms, by batch and tokens per row"))
    console.print(_cost_table(costs["passes"], "width"))
    if costs["drafts"]:
        console.print(Text(f"Draft of {costs['drafter']}, ms, by batch and gamma"))
        console.print(_cost_table(costs["drafts"], "gamma"))
    if "supposed" in report:
        is_free = "" if costs["drafts"] else ", drafts taken as free"
        console.print(Text(f"Best gamma (predicted speed over plain) by acceptance{is_free}"))
        console.print(_supposed_table(report["supposed"]))
    else:
        console.print(Text("Predicted speed over plain, by batch and gamma"))
        console.print(_speed_table(report["predictions"]))
    for line in _conclusions(report):
        console.print(Text(line))
    console.print()


def _cost_table(costs: Sequence[Mapping[str, Any]], size: str) -> Table:
    sizes = sorted({cost[size] for cost in costs})
    table = _table("batch", *map(str, sizes))
    for batch in sorted({cost["batch"] for cost in costs}):
        found = {cost[size]: cost["seconds"] for cost in costs if cost["batch"] == batch}
        table.add_row(str(batch), *(f"{found[s] * 1e3:.1f}" for s in sizes))
    return table


def _speed_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    gammas = sorted({row["gamma"] for row in rows})
    table = _table("batch", *map(str, gammas))
    for batch in sorted({row["batch"] for row in rows}):
        found = {row["gamma"]: row["speedup"] for row in rows if row["batch"] == batch}
        table.add_row(str(batch), *(f"{found[gamma]:.2f}" for gamma in gammas))
    return table


def _supposed_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    batches = sorted({row["batch"] for row in rows})
    table = _table("acceptance", *(f"batch {batch}" for batch in batches))
    for level in SUPPOSED:
        cells = {row["batch"]: _choice(row) for row in rows if row["acceptance"] == level}
        table.add_row(f"{level:.2f}", *(cells[batch] for batch in batches))
    return table


def _choice(row: Mapping[str, Any]) -> str:
    return f"{row['gamma']} ({row['speedup']:.2f})" if row["gamma"] else "off"


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _conclusions(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f"Batch {row['batch']}: gamma {row['gamma']}, predicted {row['speedup']:.2f} times as fast "
        f"as plain."
        if row["gamma"]
        else f"Batch {row['batch']}: off. No gamma is predicted to be faster than plain decoding."
        for row in report.get("advice", ())
    ]
    if "trial" in report:
        trial = report["trial"]
        conditional = ", ".join(f"{share:.2f}" for share in trial["conditional"])
        lines += [
            f"Conditional acceptance by position {conditional}; {trial['drafting_share']:.0%} of "
            f"the rounds had a draft. Measured on {trial['prompts']}.",
            f"At gamma {trial['gamma']}, batch 1: predicted {trial['predicted']:.2f}, measured "
            f"{trial['measured']:.2f} times as fast as plain.",
        ]
    if report["is_noisy"]:
        lines.append(
            "The timings scatter: other work was running. Do not trust predictions made of them; "
            "measure again on a quiet machine."
        )
    return lines
