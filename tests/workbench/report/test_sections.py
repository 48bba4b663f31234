"""Which sections a report has: those of its parts, and no others."""

import pytest

from lenity.workbench.report.sections import sections_of
from tests.workbench.report.sample import bare, report

PARTS = {
    "frontier": ("section-frontier", ["frontier", "frontier-calls"]),
    "tasks": ("section-tasks", []),
    "worst_slice": ("section-tasks", []),
    "acceptance": ("section-rounds", ["acceptance", "acceptance-conditional"]),
    "latency": ("section-rounds", ["latency"]),
    "regret": ("section-regret", ["regret"]),
    "opportunity": (
        "section-opportunity",
        ["opportunity-1", "opportunity-2", "opportunity-3"],
    ),
    "sweeps": ("section-sweeps", ["plot-asd-budget", "plot-asd-block-cap"]),
    "reliability": ("section-forecasts", ["plot-survival"]),
    "predicted": ("section-replay", ["plot-predicted-tokens"]),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_alone_has_its_section_alone(part):
    (section,) = sections_of(bare(**{part: getattr(report(), part)}))
    assert (section.slug, [figure.slug for figure in section.figures]) == PARTS[part]


def test_without_parts_there_is_no_section():
    assert sections_of(bare()) == []


def test_a_full_report_has_them_in_order(sections):
    slugs = [section.slug for section in sections]
    assert slugs == list(dict.fromkeys(slug for slug, _ in PARTS.values()))


def test_other_tables_have_a_section_at_the_end():
    other = report().tasks.model_copy(update={"name": "other"})
    data = bare(tasks=report().tasks, tables=(other,))
    assert sections_of(data)[-1].tables == (other,)


def test_an_arm_looks_alike_in_all_figures(sections):
    keys = {}
    for section in sections:
        for figure in section.figures:
            if figure.slug in ("acceptance", "regret"):
                for key in figure.legend:
                    keys.setdefault(key.text, set()).add(key.look)
    assert {"relaxed", "priced"} <= set(keys)
    assert all(len(looks) == 1 for looks in keys.values())
