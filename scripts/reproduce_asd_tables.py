"""The tables of docs/reproduce/asd.md and priced.md, made from docs/reproduce/asd.json.

A table stands between ``<!-- table NAME -->`` and ``<!-- end -->``; what stands around it is
written by hand. What the summary does not have is said in the table's place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[1] / "docs" / "reproduce"
OURS = ("asd.md", "priced.md")
FAMILIES = ("maths", "code", "chat", "data")
PAPER = {
    "budget": {"4": "4.96", "8": "6.53", "12": "6.98", "16": "6.64"},
    "gate": {"0.125": "2.84", "0.25": "6.53", "0.5": "7.62", "inf": "6.62"},
    "block_cap": {"1": "6.20", "2": "6.53", "none": "6.70"},
    "gamma": {"2": "1.4", "3": "3.0", "5": "6.0", "7": "7.5"},
}
"""Gains in %, GSM8K: table 3, and figure 6b read off the plot (arXiv 2608.03447)."""
PAPER_COVERAGE = {"0": 43, "0.05": 62, "0.1": 78, "0.25": 95.3, "0.5": 98.5, "1": 100}
"""Requests with an exception, %: figure 5, read off the plot."""
_BLOCK = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)

Summary = Mapping[str, Any]


def write_tables(summary: Summary) -> None:
    """Put every table of every page in its place."""
    for page in (PAGES / name for name in OURS):
        page.write_text(filled(page.read_text(encoding="utf-8"), summary), encoding="utf-8")


def filled(text: str, summary: Summary) -> str:
    """Return a page with its tables made again; a name that no table has is left as it is."""

    def fill(match: re.Match[str]) -> str:
        head, name, end = match.groups()
        if name not in TABLES:
            return match.group()
        try:
            body = TABLES[name](summary)
        except KeyError as missing:
            body = f"*Not run: {missing.args[0]}.*"
        return f"{head}{body}\n{end}"

    return _BLOCK.sub(fill, text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent, with its sign."""
    return "–" if value is None else f"{100 * value:+.{digits}f}"


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "–" if value is None else f"{100 * value:.0f}"


def gain(found: Sequence[float], digits: int = 1) -> str:
    """Return an estimate in percent and its interval."""
    low, high = (f"{100 * value:+.{digits}f}" for value in found[1:])
    return f"{percent(found[0], digits)} [{low}, {high}]"


def _knob(name: str) -> Callable[[Summary], str]:
    """Return the table of one knob: paper, replay by family, and what was measured."""

    def made(summary: Summary) -> str:
        predicted = summary["knobs"][name]
        live = summary["arms"].get(name, {})
        header = ["value", "paper, %", "predicted, %", *FAMILIES, "nats", "measured, %", "nats"]
        rows = []
        for value, groups in predicted.items():
            everything = groups["all"]
            arm = live.get(f"asd-{value}" if name == "gamma" else f"asd-{name}-{value}")
            rows.append(
                [
                    value,
                    PAPER[name].get(value, "–"),
                    gain(everything["gain"]),
                    *(percent(groups[family]["gain"][0]) for family in FAMILIES),
                    f"{everything['mean_regret']:.2f}",
                    gain(arm["all"]["gain"]) if arm else "–",
                    f"{arm['all']['mean_regret']:.2f}" if arm else "–",
                ]
            )
        return table(header, rows)

    return made


def _coverage(summary: Summary) -> str:
    live = summary["arms"].get("gate", {})
    rows = []
    for value, groups in summary["knobs"]["gate"].items():
        arm = live.get(f"asd-gate-{value}")
        rows.append(
            [
                value,
                f"{PAPER_COVERAGE[value]:g}" if value in PAPER_COVERAGE else "–",
                share(groups["all"]["coverage"]),
                *(share(groups[family]["coverage"]) for family in FAMILIES),
                share(arm["all"]["coverage"]) if arm else "–",
            ]
        )
    return table(["g", "paper, %", "predicted, %", *FAMILIES, "measured, %"], rows)


def _live_families(name: str) -> Callable[[Summary], str]:
    """Return the table of a live sweep: every arm, every family, and what the text is like."""

    def made(summary: Summary) -> str:
        arms = summary["arms"][name]
        families = [f for f in next(iter(arms.values())) if f != "all"]
        header = ["arm", "tokens per pass", "gain, %", *families, "nats", "max", "covered, %"]
        rows = [
            [
                f"`{arm}`",
                f"{groups['all']['tokens_per_pass']:.2f}",
                gain(groups["all"]["gain"]),
                *(percent(groups[family]["gain"][0]) for family in families),
                f"{groups['all']['mean_regret']:.2f}",
                f"{groups['all']['max_regret']:.1f}",
                share(groups["all"]["coverage"]),
            ]
            for arm, groups in arms.items()
        ]
        return table(header, rows)

    return made


def _text(name: str) -> Callable[[Summary], str]:
    """Return what relaxing does to the text of a sweep's arms."""

    def made(summary: Summary) -> str:
        header = [
            "arm",
            "requests",
            "differ from strict, %",
            "repeated 4-grams, %",
            "arm − strict, points",
            "in loops, %",
            "tokens",
            "log-probability per token, arm − strict",
            "score",
            "score, arm − strict, points",
        ]
        return table(header, [_text_row(a, g["all"]) for a, g in summary["arms"][name].items()])

    return made


def _text_row(arm: str, found: Mapping[str, Any]) -> list[str]:
    logprob, score = found["logprob"], found["score"]
    return [
        f"`{arm}`",
        str(found["requests"]),
        share(found["differs"]),
        f"{100 * (found['repetition'] or 0):.1f}",
        "–" if found["repeats"] is None else gain(found["repeats"]),
        f"{100 * (found['loops'] or 0):.1f}",
        f"{found['tokens']:.1f}",
        "–" if logprob is None else "{:+.3f} [{:+.3f}, {:+.3f}]".format(*logprob),
        "–" if found["mean_score"] is None else f"{100 * found['mean_score']:.1f}",
        "–" if score is None else gain(score),
    ]


def _opportunity(name: str) -> Callable[[Summary], str]:
    def made(summary: Summary) -> str:
        groups = summary["opportunity"][name]
        following = groups["all"]["following"]
        header = ["τ, nats", *(f"p = {p}" for p in following)]
        header += [f"{family}, p = 1" for family in FAMILIES]
        rows = []
        for row, tau in enumerate(groups["all"]["taus"]):
            own = [100 * s for s in groups["all"]["shares"][row]]
            families = [100 * groups[family]["shares"][row][1] for family in FAMILIES]
            rows.append([f"{tau:g}", *(f"{value:.1f}" for value in (*own, *families))])
        return table(header, rows)

    return made


def _local(summary: Summary) -> str:
    header = ["B", "rule", "setting", "gain, %", "nats", "dearest", "ASD / it − 1, %"]
    rows = []
    for row in summary["local"]:
        asd = row["asd"]
        rows.append([f"{row['budget']:g}", "ASD", *_local_cells(asd), "–"])
        for name, found in row["rules"].items():
            cells = _local_cells(found)
            rows.append([f"{row['budget']:g}", name, *cells, gain(found["asd_over_it"])])
    return table(header, rows)


def _local_cells(found: Mapping[str, Any]) -> list[str]:
    return [
        f"`{found['spec']}`",
        gain(found["gain"]),
        f"{found['mean_regret']:.2f}",
        f"{found['max_regret']:.1f}",
    ]


def _levels(key: str, unit: str = "nats per request", digits: int = 3) -> Callable[[Summary], str]:
    """Return a comparison over levels by replay."""
    values = unit if key == "same_gain" else "tokens per target pass"

    def made(summary: Summary) -> str:
        own, other = _NAMES[key]
        level = "tokens per target pass" if key == "same_gain" else "nats per request"
        header = [level, f"{own}: {values}", f"{other}: {values}", "difference, %"]
        rows = [
            [
                f"{row['level']:g}",
                f"{row['own']:.{digits}f}",
                f"{row['other']:.{digits}f}",
                gain(row["difference"]),
            ]
            for row in summary["replay"][key]
        ]
        return table(header, rows)

    return made


_NAMES = {
    "priced_asd": ("priced", "ASD"),
    "priced_one_knob": ("priced", "ASD, B only"),
    "paced_priced": ("priced, paced", "priced"),
    "same_gain": ("priced", "ASD"),
}


def _priced_families(summary: Summary) -> str:
    header = ["family", "nats per request", "priced", "ASD", "difference, %"]
    rows = [
        [
            family,
            f"{row['level']:g}",
            f"{row['own']:.3f}",
            f"{row['other']:.3f}",
            gain(row["difference"]),
        ]
        for family, found in summary["replay"]["families"].items()
        for row in found
    ]
    return table(header, rows)


def _priced_live(summary: Summary) -> str:
    rows = []
    for row in summary["live"]["levels"]:
        for family, found in {"all": row, **row["families"]}.items():
            cells = [f"{found['own']:.3f}", f"{found['other']:.3f}", gain(found["difference"])]
            rows.append([family, f"{found['level']:.2f}", *cells])
    return table(["family", "nats per request", "priced", "ASD", "difference, %"], rows)


def _predicted_measured(summary: Summary) -> str:
    rows = []
    for row in summary["live"]["levels"]:
        for spec, found in row["settings"].items():
            rows.append(
                [
                    f"`{row['run']}`",
                    f"`{spec}`",
                    f"{found['predicted_regret']:.2f}",
                    f"{found['measured_regret']:.2f}",
                    f"{found['predicted_tokens_per_pass']:.3f}",
                    f"{found['measured_tokens_per_pass']:.3f}",
                ]
            )
    header = ["run", "setting", "nats, predicted", "nats, measured"]
    header += ["tokens per pass, predicted", "tokens per pass, measured"]
    return table(header, list(dict.fromkeys(map(tuple, rows))))


def _latency(summary: Summary) -> str:
    arms = summary["latency"]
    header = ["arm", "draft", "target", "verify", "commit", "all"]
    rows = [
        [f"`{arm}`", *(f"{found[stage]:.3f}" for stage in header[1:])]
        for arm, found in arms.items()
    ]
    return table(header, rows)


def _runs(summary: Summary) -> str:
    rows = []
    for name, run in summary["runs"].items():
        state = "" if run["state"] == "finished" else ", not finished"
        requests = f"{run['requests']}{state}"
        rows.append([f"`{name}`", f"`{run['run_id']}`", requests, f"`{run['command']}`"])
    return table(["run", "id", "requests, all arms", "command"], rows)


TABLES: Mapping[str, Callable[[Summary], str]] = {
    **{name: _knob(name) for name in PAPER},
    **{
        f"live-{name}": _live_families(name)
        for name in (
            *PAPER,
            "matched",
            "priced",
            "priced-high",
            *(f"ngram-{knob}" for knob in ("budget", "gate", "gamma", "matched")),
            *(f"self-{knob}" for knob in ("budget", "gate", "gamma")),
            "target-budget",
        )
    },
    **{
        f"text-{name}": _text(name)
        for name in ("gate", "budget", "quality", "priced", "priced-high", "matched")
    },
    **{f"opportunity-{n}": _opportunity(n) for n in ("traces", "ngram-traces")},
    "coverage": _coverage,
    "local": _local,
    "priced_asd": _levels("priced_asd"),
    "priced_one_knob": _levels("priced_one_knob"),
    "paced_priced": _levels("paced_priced"),
    "same_gain": _levels("same_gain", digits=2),
    "priced_families": _priced_families,
    "priced_live": _priced_live,
    "predicted_measured": _predicted_measured,
    "latency": _latency,
    "runs": _runs,
}
"""Tables by the name that stands in the pages."""
