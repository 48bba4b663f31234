"""Read the run of scripts/reproduce_skipping.py and write what the page says of it.

    python -m scripts.reproduce_skipping_summary RUN     # -> docs/reproduce/skipping.json, tables
    python -m scripts.reproduce_skipping_summary         # skipping.json -> tables and plots only

What stands between ``<!-- table NAME -->`` and ``<!-- end -->`` in docs/reproduce/skipping.md is
made from skipping.json; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from lenity.errors import LenityError
from lenity.workbench.diagnostics import break_even
from lenity.workbench.intervals import (
    Interval,
    bootstrap_gain,
    bootstrap_mean,
    paired_difference_interval,
)
from lenity.workbench.metrics import Agreement, Counts, agreement_lengths
from lenity.workbench.pairing import mean_logprob
from lenity.workbench.records import SampleRecord
from lenity.workbench.repetition import repeated_ngram_rate
from lenity.workbench.rundir import RunDir
from scripts.reproduce_skipping_offline import offline_summary
from scripts.reproduce_skipping_page import write_page
from scripts.reproduce_skipping_predicted import LEVELS

MARGIN = 0.02
"""Nats a token the target's mean log-probability may be lower by, as in the workbench."""
RESAMPLES = 2000

Records = Sequence[SampleRecord]


def summarise(run: Path, page: Path) -> None:
    """Write skipping.json of a run, then the page's tables and plots."""
    costs = json.loads((run / "costs.json").read_text())
    found = {
        "costs": costs,
        "offline": offline_summary(run),
        "online": online_summary(run, costs),
    }
    page.mkdir(parents=True, exist_ok=True)
    (page / "skipping.json").write_text(json.dumps(_rounded(found), indent=1) + "\n")
    write_page(page)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, Mapping):
        return {key: _rounded(own) for key, own in value.items()}
    return [_rounded(own) for own in value] if isinstance(value, list | tuple) else value


def online_summary(run: Path, costs: Mapping[str, float]) -> dict[str, Any]:
    """Return a row for every arm, over the prompts that every arm answered."""
    share = costs["draft_seconds"] / (costs["draft_seconds"] + costs["target_seconds"])
    found = {place.name: _arms(place) for place in sorted((run / "online").iterdir())}
    groups = _on_shared_prompts({name: own for name, own in found.items() if own})
    rows: dict[str, Any] = {}
    for own in groups.values():
        rows |= {arm: _row(records, own["strict"]) for arm, records in own.items()}
    strict = groups["signals"]["strict"]
    counts = Counts.of(strict)
    return {
        "prompts": len(strict),
        "draft_share": share,
        "break_even": break_even(counts.accepted / counts.draft_passes, share, 1 - share),
        "accepted": counts.accepted / counts.draft_passes,
        "tokens_per_pass": counts.emitted / counts.target_passes,
        "exact": {"prompts": len(_exact_pairs(strict, strict)[0]), "strict": _exact_rate(strict)},
        "arms": rows,
        "equal_quality": _equal_quality(groups, rows),
    }


def _arms(place: Path) -> dict[str, list[SampleRecord]]:
    """Return the records of a group's arms, over the prompts that all of them answered.

    Nothing where those are fewer than 2: an arm of the group is still to come.
    """
    made = RunDir.open(place)
    names = [arm["name"] for arm in cast(Any, made.manifest.settings["arms"])]
    by_arm: dict[str, dict[str, SampleRecord]] = {name: {} for name in names}
    for record in made.records():
        if record.status == "ok":
            by_arm[record.arm][record.item_id] = record
    shared = [item for item in by_arm["strict"] if all(item in own for own in by_arm.values())]
    if len(shared) < 2:
        return {}
    return {arm: [own[item] for item in shared] for arm, own in by_arm.items()}


def _on_shared_prompts(
    groups: Mapping[str, Mapping[str, Records]],
) -> dict[str, dict[str, list[SampleRecord]]]:
    """Return the groups with the prompts that all of them have."""
    items = [{record.item_id for record in own["strict"]} for own in groups.values()]
    shared = set.intersection(*items)
    return {
        group: {arm: [r for r in records if r.item_id in shared] for arm, records in own.items()}
        for group, own in groups.items()
    }


def _row(own: Records, strict: Records) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    calls, blocks = (_relative(own, strict, rng, _of(name)) for name in ("passes", "blocks"))
    differences = _differences(own, strict)
    ours, theirs = _exact_pairs(own, strict)
    changes = [a - b for a, b in zip(ours, theirs, strict=True)]
    counted = Counts.of(own)
    return {
        "calls": _interval(calls, shift=1),
        "blocks": _interval(blocks, shift=1),
        "logprob": _interval(bootstrap_mean(differences, rng, resamples=RESAMPLES)),
        "exact": _interval(paired_difference_interval(changes)) if changes else None,
        "same_text": float(np.mean([a.token_ids == b.token_ids for a, b in _zip(own, strict)])),
        "repeated": float(np.mean([repeated_ngram_rate(r.token_ids) or 0.0 for r in own])),
        "tokens": counted.emitted / counted.requests,
        "skipped": counted.skipped / counted.emitted,
        "relaxed": counted.relaxed / counted.emitted,
        **_agreement(own),
    }


def _zip(own: Records, strict: Records) -> list[tuple[SampleRecord, SampleRecord]]:
    return list(zip(own, strict, strict=True))


def _agreement(own: Records) -> dict[str, Any]:
    kept: list[int] = []
    strict: list[int] = []
    for record in own:
        lengths = agreement_lengths(record)
        kept += lengths[0]
        strict += lengths[1]
    found = Agreement.of_lengths(kept, strict)
    return {"strict_token": found.strict_token, "full_prefix": found.full_prefix}


def _of(name: str) -> Callable[[SampleRecord], int]:
    if name == "passes":
        return lambda record: sum(r.target_passes for r in record.rounds)
    return lambda record: sum(r.drafted > 0 for r in record.rounds)


def _relative(
    own: Records, strict: Records, rng: np.random.Generator, count: Callable[[SampleRecord], int]
) -> Interval:
    """Return (count / tokens) / (the same of strict) - 1, prompts resampled in pairs."""
    ours, theirs = (
        np.array([[count(record), len(record.token_ids)] for record in side], dtype=np.float64)
        for side in (own, strict)
    )
    return bootstrap_gain(ours, theirs, rng, resamples=RESAMPLES)


def _differences(own: Records, strict: Records) -> list[float]:
    pairs = [(mean_logprob(a), mean_logprob(b)) for a, b in _zip(own, strict)]
    return [a - b for a, b in pairs if a is not None and b is not None]


def _interval(found: Interval, shift: float = 0.0) -> list[float]:
    return [value + shift for value in (found.estimate, found.low, found.high)]


def _equal_quality(
    groups: Mapping[str, Mapping[str, Records]], rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the fewest calls of each rule at strict's quality.

    ``best``: the setting of the grid whose log-probability is not worse than the margin by its
    interval, and whose exact answers are not fewer. ``honest``: chosen on one half of the prompts
    by the same rule on estimates, measured on the other, and the reverse; the mean of both.
    """
    found: dict[str, Any] = {}
    for rule in ("raw", "marginal", "conditional", "product", "lenience", "top_k", "periodic"):
        holding = [own for own in groups.values() if any(n.split()[0] == rule for n in own)]
        if not holding:
            continue
        arms = holding[0]
        names = [name for name in arms if name.split()[0] == rule]
        fine = [n for n in names if rows[n]["logprob"][1] > -MARGIN and _exact_holds(rows[n])]
        best = min(fine, key=lambda name: float(rows[name]["calls"][0]), default=None)
        found[rule] = {
            "settings": len(names),
            "at_quality": len(fine),
            "best": best,
            "saving": 1 - rows[best]["calls"][0] if best else 0.0,
            "honest": float(np.mean([_honest(arms, names, half) for half in (0, 1)])),
            "at_agreement": {str(level): _at_agreement(rows, names, level) for level in LEVELS},
        }
    return found


def _at_agreement(
    rows: Mapping[str, Mapping[str, Any]], names: Sequence[str], level: float
) -> list[Any] | None:
    """Return the arm with the fewest calls at a least FullPrefix, and its calls; None for none."""
    fine = [name for name in names if (rows[name]["full_prefix"] or 0.0) >= level]
    best = min(fine, key=lambda name: float(rows[name]["calls"][0]), default=None)
    return best and [best, *rows[best]["calls"]]


def _exact_holds(row: Mapping[str, Any]) -> bool:
    return row["exact"] is None or row["exact"][0] >= 0


def _honest(arms: Mapping[str, Records], names: Sequence[str], half: int) -> float:
    """Return the saving on one half of the prompts of what the other half chooses; 0 for none."""

    def saving(name: str, part: int) -> float:
        own, strict = (Counts.of(arms[arm][part::2]) for arm in (name, "strict"))
        rate = own.target_passes / own.emitted
        return 1 - rate / (strict.target_passes / strict.emitted)

    def is_fine(name: str) -> bool:
        own, strict = arms[name][1 - half :: 2], arms["strict"][1 - half :: 2]
        ours, theirs = _exact_pairs(own, strict)
        return float(np.mean(_differences(own, strict))) > -MARGIN and sum(ours) >= sum(theirs)

    fine = [name for name in names if is_fine(name)]
    chosen = max(fine, key=lambda name: saving(name, 1 - half), default=None)
    return saving(chosen, half) if chosen else 0.0


def _exact_rate(records: Records) -> float | None:
    own = _exact_pairs(records, records)[0]
    return float(np.mean(own)) if own else None


def _exact_pairs(own: Records, strict: Records) -> tuple[list[float], list[float]]:
    """Return right (1) or wrong (0) of both, for the prompts that have a right answer."""
    pairs = [
        (is_right(a.item_id, a.text), is_right(b.item_id, b.text)) for a, b in _zip(own, strict)
    ]
    kept = [(float(a), float(b)) for a, b in pairs if a is not None and b is not None]
    return [a for a, _ in kept], [b for _, b in kept]


def is_right(prompt: str, text: str | None) -> bool | None:
    """Return whether an answer is right; None where a prompt has no one right answer.

    Counting: the numbers, in order, nothing else. Repeating: the sentence three times. A JSON
    object: one that parses, with the fields.
    """
    answer = text or ""
    if counted := re.fullmatch(r"Count from (\d+) to (\d+), one number per line\.", prompt):
        first, last = map(int, counted.groups())
        return re.findall(r"\d+", answer) == [str(i) for i in range(first, last + 1)]
    if repeated := re.fullmatch(r"Repeat this sentence three times: (.*)", prompt):
        return answer.count(repeated[1]) == 3
    if asked := re.search(r"object with the fields (\w+), (\w+) and (\w+) for", prompt):
        return _has_fields(answer, asked.groups())
    return None


def _has_fields(answer: str, fields: Sequence[str]) -> bool:
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        parsed = json.loads(found[0]) if found else None
    except ValueError:
        return False
    return isinstance(parsed, dict) and {f.lower() for f in fields} <= {k.lower() for k in parsed}


def main() -> int:
    """Summarise a run, or make tables and plots of the summary there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--page", type=Path, default=Path("docs/reproduce"))
    chosen = parser.parse_args()
    try:
        if chosen.run is None:
            write_page(chosen.page)
        else:
            summarise(chosen.run, chosen.page)
    except (LenityError, OSError) as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
