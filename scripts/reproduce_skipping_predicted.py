"""What skipping would save, predicted from logged strict blocks alone; no model.

A first-order estimate: a policy skips K^ tokens of a block where it may, and lets strict emit L + 1
of it elsewhere; every block is as likely after a skip as after a pass. Calls and blocks per token
are sums over sums. What it leaves out: a skip's next block begins in the middle of what was sure,
guards, staleness, and text that has left strict's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lenity.workbench.diagnostics import LoggedBlocks, feasible_lengths
from lenity.workbench.intervals import bootstrap

LEVELS = (0.98, 0.97, 0.95, 0.90)
"""FullPrefix at which savings are compared; the paper's equal-quality points are at 0.97-0.98."""
RESAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Gates of a signal."""

    signal: str
    local: float
    prefix: float
    least: int


def predicted(
    logs: Mapping[str, LoggedBlocks], prompts: Sequence[str], settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """Return a row for every setting by name; ``signal`` names one of the logs."""
    rows = {}
    for name, setting in settings.items():
        log = logs[setting.signal]
        lengths = feasible_lengths(log, setting.local, setting.prefix)
        lengths = lengths * (lengths >= max(1, setting.least))
        rows[name] = {"signal": setting.signal, **_row(log, lengths, prompts)}
    return rows


def at_agreement(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return each signal's fewest calls at every least FullPrefix: setting, calls, interval.

    Over its published grid; rows that move K_min are left out.
    """
    found: dict[str, Any] = {}
    for signal in dict.fromkeys(row["signal"] for row in rows.values()):
        own = {n: r for n, r in rows.items() if r["signal"] == signal and n.startswith(signal)}
        for level in LEVELS:
            fine = [n for n, row in own.items() if (row["full_prefix"] or 1.0) >= level]
            best = min(fine, key=lambda name: float(own[name]["calls"][0]), default=None)
            found.setdefault(signal, {})[str(level)] = best and [best, *own[best]["calls"]]
    return found


def any_threshold(logs: Mapping[str, LoggedBlocks], least: int) -> dict[str, Any]:
    """Return each signal's fewest calls at every least FullPrefix, the prefix gate alone.

    Over every 200th of a threshold, so that no grid favours a signal.
    """
    found: dict[str, Any] = {}
    for signal, log in logs.items():
        best = dict.fromkeys(map(str, LEVELS), 1.0)
        for gate in np.linspace(0, 1, 201):
            lengths = feasible_lengths(log, 0.0, float(gate))
            calls, _, full = _sums(log, lengths * (lengths >= max(1, least)))
            for level in LEVELS:
                if full >= level:
                    best[str(level)] = min(best[str(level)], calls)
        found[signal] = best
    return found


def _sums(log: LoggedBlocks, lengths: NDArray[np.int64]) -> tuple[float, float, float]:
    """Return relative calls, StrictToken and FullPrefix of rounds that commit a draft token."""
    is_skip = lengths > 0
    kept = np.where(is_skip, lengths, log.accepted)
    tokens = np.where(is_skip, lengths, log.accepted + 1)
    calls = float((~is_skip).sum() / tokens.sum() * (log.accepted + 1).sum() / len(kept))
    counted, strict = kept[kept > 0], log.accepted[kept > 0]
    agreed = float(np.minimum(counted, strict).sum() / counted.sum())
    return calls, agreed, float((counted <= strict).mean())


def _row(log: LoggedBlocks, lengths: NDArray[np.int64], prompts: Sequence[str]) -> dict[str, Any]:
    is_skip = lengths > 0
    tokens = np.where(is_skip, lengths, log.accepted + 1)
    columns = np.stack([~is_skip, tokens, log.accepted + 1, np.ones_like(tokens)], axis=1)
    sums = _by_prompt(columns.astype(np.float64), prompts)

    def calls(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(total[:, 0] / total[:, 1] * total[:, 2] / total[:, 3])

    interval = bootstrap(sums, calls, np.random.default_rng(0), resamples=RESAMPLES)
    total = sums.sum(0)
    _, agreed, full = _sums(log, lengths)
    return {
        "calls": [interval.estimate, interval.low, interval.high],
        "blocks": float(total[2] / total[1]),
        "skips": float(is_skip.mean()),
        "strict_token": agreed,
        "full_prefix": full,
    }


def _by_prompt(columns: NDArray[np.float64], prompts: Sequence[str]) -> NDArray[np.float64]:
    place = {prompt: i for i, prompt in enumerate(dict.fromkeys(prompts))}
    sums = np.zeros((len(place), columns.shape[1]))
    np.add.at(sums, [place[prompt] for prompt in prompts], columns)
    return sums
