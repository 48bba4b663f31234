"""What logged blocks say of every signal: position by position, and of the gates."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lenity.workbench.diagnostics import (
    LoggedBlocks,
    auroc,
    baseline,
    cross_entropy,
    feasible_lengths,
    gate_ablation,
    permutation_test,
    permuted,
    prefix_scores,
    read_blocks,
)
from scripts.reproduce_skipping_grids import GATED, MIN_PREFIX, MIN_PREFIXES, grids
from scripts.reproduce_skipping_predicted import Setting, any_threshold, at_agreement, predicted

GATES = {"raw": (0.90, 0.93), "marginal": (0.90, 0.90), "conditional": (0.90, 0.90)}
"""The paper's, for the permutation and the gates left out."""
LONG = 5
PRECISIONS = (0.95, 0.90, 0.80)
RESAMPLES = 200

Floats = NDArray[np.float64]


def offline_summary(run: Path) -> dict[str, Any]:
    """Return the numbers of all signals of a run, test folds pooled."""
    files = {"raw": run / "raw.jsonl"}
    for variant in ("hidden", "scalars"):
        for estimand in ("marginal", "conditional"):
            files[f"{estimand} {variant}"] = run / variant / f"{estimand}.jsonl"
    files["conditional calibrated"] = run / "calibrated" / "conditional.jsonl"
    logs = {name: read_blocks(file) for name, file in files.items() if file.is_file()}
    raw, prompts = logs["raw"], _prompts(files["raw"])
    return {
        "blocks": len(raw.lengths),
        "prompts": len(set(prompts)),
        "mean_accepted": float(raw.accepted.mean()),
        "survival": [float(rate) for rate in raw.survives.mean(0)],
        "all_positions": _scored(_all_positions(logs), raw, prompts, "marginal"),
        "at_risk": _scored(_at_risk(logs), raw, prompts, "conditional"),
        "gates": {name: _gates(log) for name, log in logs.items()},
        "at_precision": {name: _at_precision(log) for name, log in logs.items()},
        "predicted": (rows := predicted(_by_signal(logs), prompts, _settings())),
        "at_agreement": at_agreement(rows),
        "any_threshold": any_threshold(_by_signal(logs), MIN_PREFIX),
    }


def _by_signal(logs: dict[str, LoggedBlocks]) -> dict[str, LoggedBlocks]:
    """Return the logs the published grids are tried on; ``product`` gates raw's by its product."""
    found = {"raw": logs["raw"], "product": replace(logs["raw"], signal="conditional")}
    return found | {name: logs[f"{name} hidden"] for name in ("marginal", "conditional")}


def _settings() -> dict[str, Setting]:
    """Return the grids, and K_min."""
    found = {}
    for signal, pairs in grids().items():
        for local, prefix in pairs:
            found[f"{signal} {local} {prefix}"] = (signal, local, prefix, MIN_PREFIX)
    for signal, (local, prefix) in GATED.items():
        for least in (MIN_PREFIX, *MIN_PREFIXES):
            found[f"min_prefix {signal} {least}"] = (signal, local, prefix, least)
    names = ("signal", "local", "prefix", "least")
    return {k: Setting(**dict(zip(names, v, strict=True))) for k, v in found.items()}


def _prompts(file: Path) -> list[str]:
    return [json.loads(line)["prompt"] for line in file.read_text().splitlines()]


def _all_positions(logs: dict[str, LoggedBlocks]) -> dict[str, Floats]:
    """Return every signal's estimate of P(L >= j), for every drafted position."""
    found = {"raw, the position's": logs["raw"].scores}
    found["raw, product"] = np.cumprod(logs["raw"].scores, axis=1)
    for name, log in logs.items():
        if name.startswith("marginal"):
            found[name] = log.scores
        if name.startswith("conditional"):
            found[f"{name}, product"] = prefix_scores("conditional", log.scores)
    return found


def _at_risk(logs: dict[str, LoggedBlocks]) -> dict[str, Floats]:
    """Return every signal's estimate of P(L >= j given L >= j-1)."""
    return {n: log.scores for n, log in logs.items() if n == "raw" or n.startswith("conditional")}


def _scored(
    scores: dict[str, Floats], raw: LoggedBlocks, prompts: list[str], estimand: str
) -> dict[str, Any]:
    """Return BCE and AUROC of each, means over positions.

    Intervals are of the difference to what is read off raw confidence: its product for P(L >= j).
    """
    signal: Any = "conditional" if estimand == "conditional" else "marginal"
    blocks = LoggedBlocks.of(signal, _ragged(raw), raw.accepted, folds=raw.folds)
    guess = baseline(blocks)
    reference = "raw" if estimand == "conditional" else "raw, product"
    rng = np.random.default_rng(0)
    draws = [_draw(prompts, rng) for _ in range(RESAMPLES)]
    found: dict[str, Any] = {"position alone": {"bce": _mean(blocks, guess, _loss)}}
    for name, own in scores.items():
        row: dict[str, Any] = {}
        for key, measure in (("bce", _loss), ("auroc", auroc)):
            row[key] = _mean(blocks, own, measure)
            if name != reference:
                leads = [
                    _mean(blocks, own, measure, rows)
                    - _mean(blocks, scores[reference], measure, rows)
                    for rows in draws
                ]
                row[f"{key}_lead"] = [float(v) for v in np.quantile(leads, [0.025, 0.975])]
        found[name] = row
    return found


def _loss(scores: Floats, labels: NDArray[np.bool_]) -> float | None:
    return cross_entropy(scores, labels)


def _ragged(log: LoggedBlocks) -> list[list[float]]:
    return [row[:n].tolist() for row, n in zip(log.scores, log.lengths, strict=True)]


def _draw(prompts: list[str], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows of as many prompts as there are, drawn with replacement."""
    rows: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        rows.setdefault(prompt, []).append(row)
    names = list(rows)
    return np.array([r for i in rng.integers(0, len(names), len(names)) for r in rows[names[i]]])


def _mean(
    blocks: LoggedBlocks,
    scores: Floats,
    measure: Callable[[Floats, NDArray[np.bool_]], float | None],
    rows: NDArray[np.int64] | None = None,
) -> float:
    """Return the mean over positions of a measure of the pairs that count there."""
    chosen = np.arange(len(scores)) if rows is None else rows
    values = []
    for j in range(scores.shape[1]):
        kept = chosen[blocks.counts[chosen, j]]
        if len(kept):
            values.append(measure(scores[kept, j], blocks.survives[kept, j]))
    known = [value for value in values if value is not None]
    return float(np.mean(known))


def _gates(log: LoggedBlocks) -> dict[str, Any]:
    """Return the permutation, and each gate by itself, at the paper's gates."""
    local, prefix = GATES[log.signal]
    shuffled = permutation_test(log, local, prefix)
    long, long_shuffled = _long_prefixes(log, local, prefix)
    spread = np.quantile(shuffled.repetitions, [0.025, 0.975])
    return {
        "gates": [local, prefix],
        "before": shuffled.before,
        "after": shuffled.after,
        "after_range": [float(v) for v in spread],
        "long_before": long,
        "long_after": long_shuffled,
        "ablation": {
            outcome.gates: {
                "skips": outcome.skipped_blocks / outcome.blocks,
                "tokens": outcome.skipped / outcome.blocks,
                "strict_token": outcome.strict_token,
                "full_prefix": outcome.full_prefix,
            }
            for outcome in gate_ablation(log, local, prefix)
        },
    }


def _long_prefixes(log: LoggedBlocks, local: float, prefix: float) -> tuple[float, float]:
    """Return the share of blocks with K^ >= LONG, before shuffling and after (mean of 100)."""
    rng = np.random.default_rng(0)
    shares = [
        float((feasible_lengths(permuted(log, rng), local, prefix) >= LONG).mean())
        for _ in range(100)
    ]
    return float((feasible_lengths(log, local, prefix) >= LONG).mean()), float(np.mean(shares))


def _at_precision(log: LoggedBlocks) -> dict[str, float]:
    """Return the most draft tokens a block that one gate passes at each least FullPrefix.

    The prefix gate alone, its threshold moved over every thousandth: what a signal is worth
    offline, whatever its scale.
    """
    best = dict.fromkeys(map(str, PRECISIONS), 0.0)
    for gate in np.linspace(0, 1, 1001):
        lengths = feasible_lengths(log, 0.0, float(gate))
        is_skip = lengths > 0
        if not is_skip.any():
            continue
        full = float((lengths[is_skip] <= log.accepted[is_skip]).mean())
        for least in PRECISIONS:
            if full >= least:
                best[str(least)] = max(best[str(least)], float(lengths.mean()))
    return best
