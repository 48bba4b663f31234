"""Tables and plots of docs/reproduce/skipping.md, from skipping.json alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.reproduce_skipping_grids import MIN_PREFIX, PAPER_DRAFT_SHARE, WHOLE
from scripts.reproduce_skipping_plots import plot_frontier, plot_min_prefix

PAPER_SAVINGS = {"raw": 13.5, "conditional": 12.5, "marginal": 9.6, "lenience": 4.6}
"""Percent of target calls at the same pass@1, HumanEval."""
PAPER_GATES = {
    "raw": {"both": (0.8170, 0.8902), "local": (0.8146, 0.8902), "prefix": (0.7659, 0.8598)},
    "conditional": {
        "both": (0.8175, 0.8841),
        "local": (0.7896, 0.7805),
        "prefix": (0.8175, 0.8841),
    },
}
"""Relative calls and pass@1; strict's is 0.9085."""
PAPER_PERIODIC = {3: (0.7939, 0.7417), 4: (0.8502, 0.7542), 8: (0.9540, 0.6989)}
"""Relative calls and strict-token agreement."""
PAPER_SHUFFLED = {"raw": (8.75, 1.59), "marginal": (6.86, 1.00), "conditional": (8.76, 2.11)}


def write_page(page: Path) -> None:
    """Write the plots, and the tables into skipping.md where it is there."""
    found = json.loads((page / "skipping.json").read_text())
    plot_frontier(found, page / "skipping-frontier.svg")
    plot_min_prefix(found, page / "skipping-min-prefix.svg")
    text = page / "skipping.md"
    if text.is_file():
        text.write_text(fill(text.read_text(), tables(found)))


def fill(text: str, made: Mapping[str, str]) -> str:
    """Return the page with its tables made again."""

    def table(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{made[match[2]]}\n\n{match[3]}"

    return re.sub(r"(<!-- table (\w+) -->).*?(<!-- end -->)", table, text, flags=re.DOTALL)


def tables(found: Mapping[str, Any]) -> dict[str, str]:
    """Return every table by name, in Markdown."""
    offline, online = found["offline"], found["online"]
    return {
        "positions": _positions(offline["all_positions"], "the product's"),
        "at_risk": _positions(offline["at_risk"], "raw's"),
        "precision": _precision(offline["at_precision"]),
        "shuffled": _shuffled(offline["gates"]),
        "equal_quality": _equal_quality(online),
        "points": _points(online["arms"], offline["predicted"]),
        "agreement": _agreement(offline["at_agreement"], offline["any_threshold"]),
        "measured_agreement": _measured_agreement(online["equal_quality"]),
        "gates_offline": _gates_offline(offline["gates"]),
        "gates": _gates(online["arms"]),
        "min_prefix": _min_prefix(online, offline["predicted"]),
        "periodic": _periodic(online["arms"]),
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _positions(signals: Mapping[str, Any], whose: str) -> str:
    rows = []
    for name, row in signals.items():
        leads = [
            "–" if f"{key}_lead" not in row else _lead(row[f"{key}_lead"])
            for key in ("bce", "auroc")
        ]
        auroc = f"{row['auroc']:.3f}" if "auroc" in row else "–"
        rows.append([name, f"{row['bce']:.3f}", leads[0], auroc, leads[1]])
    return _table(["signal", "BCE", f"minus {whose}", "AUROC", f"minus {whose}"], rows)


def _lead(limits: Sequence[float]) -> str:
    return "{:+.3f} to {:+.3f}".format(*limits).replace("-", "−")


def _precision(signals: Mapping[str, Any]) -> str:
    names = list(next(iter(signals.values())))
    rows = [[s, *(f"{row[name]:.2f}" for name in names)] for s, row in signals.items()]
    return _table(["signal", *(f"FullPrefix ≥ {name}" for name in names)], rows)


def _shuffled(gates: Mapping[str, Any]) -> str:
    rows = []
    for name, row in gates.items():
        paper = PAPER_SHUFFLED.get(name.replace(" hidden", ""))
        low, high = row["after_range"]
        rows.append(
            [
                name,
                " / ".join(f"{gate:g}" for gate in row["gates"]),
                f"{row['before']:.2f}",
                f"{row['after']:.2f} ({low:.2f}–{high:.2f})",
                f"{100 * row['long_before']:.1f} → {100 * row['long_after']:.1f} %",
                "–" if paper is None else f"{paper[0]:.2f} → {paper[1]:.2f}",
            ]
        )
    return _table(["signal", "gates", "tokens pass", "shuffled", "5 or more pass", "paper"], rows)


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %".replace("-", "−")


def _nats(interval: Sequence[float]) -> str:
    return "{:+.3f} ({:+.3f} to {:+.3f})".format(*interval).replace("-", "−")


def _range(interval: Sequence[float]) -> str:
    return "{:.3f} ({:.3f}–{:.3f})".format(*interval)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _equal_quality(online: Mapping[str, Any]) -> str:
    rows = []
    for rule, row in online["equal_quality"].items():
        best = online["arms"].get(row["best"])
        paper = PAPER_SAVINGS.get(rule)
        rows.append(
            [
                rule,
                f"{row['at_quality']} of {row['settings']}",
                (row["best"] or "none").removeprefix(f"{rule} "),
                _percent(row["saving"]),
                _percent(row["honest"]),
                "–" if best is None else _share(best["full_prefix"]),
                "–" if best is None else _nats(best["logprob"]),
                "–" if paper is None else f"{paper} %",
            ]
        )
    head = ["rule", "settings at quality", "fewest calls", "saved", "chosen on the other half"]
    return _table([*head, "FullPrefix", "log-probability, nats a token", "paper"], rows)


def _points(arms: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    rules = ("raw", "marginal", "conditional", "product", "lenience", "top_k", "periodic")
    rows = []
    for name, row in arms.items():
        if name != "strict" and name.split()[0] not in rules:
            continue
        guess = predicted.get(name)
        rows.append(
            [
                name,
                "–" if guess is None else f"{guess['calls'][0]:.3f}",
                _range(row["calls"]),
                f"{row['blocks'][0]:.3f}",
                "–" if guess is None else f"{guess['full_prefix']:.3f}",
                _share(row["full_prefix"]),
                _share(row["strict_token"]),
                _nats(row["logprob"]),
                "–" if row["exact"] is None else f"{100 * row['exact'][0]:+.0f}".replace("-", "−"),
                _percent(row["same_text"]),
                _percent(row["repeated"]),
            ]
        )
    head = ["arm", "calls, predicted", "calls", "blocks", "FullPrefix, predicted", "FullPrefix"]
    return _table(
        [*head, "StrictToken", "log-probability", "exact, points", "same text", "repeated"], rows
    )


def _agreement(signals: Mapping[str, Any], finest: Mapping[str, Any]) -> str:
    levels = list(next(iter(signals.values())))
    rows = []
    for signal, found in signals.items():
        rows.append([signal, *(_saved(signal, found[level]) for level in levels)])
    for signal, calls_at in finest.items():
        saved = [f"{100 * (1 - calls_at[level]):.1f} %" for level in levels]
        rows.append([f"{signal}, any threshold", *saved])
    return _table(["signal", *(f"FullPrefix ≥ {level}" for level in levels)], rows)


def _saved(rule: str, found: Sequence[Any] | None) -> str:
    if found is None:
        return "none"
    name, *calls = found
    saved, most, least = (f"{100 * (1 - value):.1f}".replace("-", "−") for value in calls)
    return f"{saved} % ({least}–{most}) at {name.removeprefix(f'{rule} ').replace(' ', '/')}"


def _measured_agreement(rules: Mapping[str, Any]) -> str:
    levels = list(next(iter(rules.values()))["at_agreement"])
    rows = [
        [rule, *(_saved(rule, row["at_agreement"][level]) for level in levels)]
        for rule, row in rules.items()
    ]
    return _table(["rule", *(f"FullPrefix ≥ {level}" for level in levels)], rows)


def _gates_offline(gates: Mapping[str, Any]) -> str:
    rows = []
    for name in ("raw", "conditional hidden"):
        for gate, row in gates[name]["ablation"].items():
            cells = [name, {"full": "both"}.get(gate, gate), f"{row['tokens']:.2f}"]
            rows.append([*cells, _share(row["strict_token"]), _share(row["full_prefix"])])
    return _table(["signal", "gates", "tokens a block", "StrictToken", "FullPrefix"], rows)


def _gates(arms: Mapping[str, Any]) -> str:
    rows = []
    for rule, paper in PAPER_GATES.items():
        names = {"both": WHOLE[rule], **{g: f"gates {rule} {g}" for g in ("local", "prefix")}}
        for gate, name in names.items():
            row = arms.get(name)
            if row is None:
                continue
            cells = [rule, gate, _range(row["calls"]), f"{row['blocks'][0]:.3f}"]
            cells += [_share(row["full_prefix"]), _nats(row["logprob"])]
            rows.append([*cells, "{:.3f}, {:.4f}".format(*paper[gate])])
    head = ["signal", "gates", "relative calls", "relative blocks", "FullPrefix"]
    return _table([*head, "log-probability", "paper: calls, pass@1"], rows)


def _min_prefix(online: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    share = online["draft_share"]
    rows = []
    for rule, whole in WHOLE.items():
        names = [n for n in predicted if n.startswith(f"min_prefix {rule}")]
        for name in sorted(names, key=lambda n: int(n.split()[-1])):
            guess = predicted[name]
            calls, blocks = guess["calls"][0], guess["blocks"]
            is_grid = name.endswith(f" {MIN_PREFIX}")
            row = online["arms"].get(whole if is_grid else name)
            times = [part * blocks + (1 - part) * calls for part in (PAPER_DRAFT_SHARE, share)]
            cells = [rule, name.split()[-1], f"{calls:.3f}", f"{blocks:.3f}"]
            cells += [f"{time:.3f}" for time in times]
            rows.append([*cells, *_measured_costs(row, share)])
    head = ["signal", "K_min", "predicted: calls", "blocks", "time, paper's costs"]
    head += ["time, our costs", "measured: calls", "blocks", "time, paper's costs"]
    return _table([*head, "time, our costs"], rows)


def _measured_costs(row: Mapping[str, Any] | None, share: float) -> list[str]:
    if row is None:
        return ["–"] * 4
    calls, blocks = row["calls"][0], row["blocks"][0]
    times = [part * blocks + (1 - part) * calls for part in (PAPER_DRAFT_SHARE, share)]
    return [_range(row["calls"]), f"{blocks:.3f}", *(f"{time:.3f}" for time in times)]


def _periodic(arms: Mapping[str, Any]) -> str:
    rows = []
    for period, paper in PAPER_PERIODIC.items():
        for count in (2, 4):
            row = arms.get(f"periodic {period} {count}")
            if row is None:
                continue
            cells = [f"{period}, {count}", _range(row["calls"]), _share(row["strict_token"])]
            cells += [_share(row["full_prefix"]), _nats(row["logprob"])]
            rows.append([*cells, "{:.3f}, {:.3f}".format(*paper)])
    head = ["P, tokens", "relative calls", "StrictToken", "FullPrefix", "log-probability"]
    return _table([*head, "paper: calls, StrictToken"], rows)
