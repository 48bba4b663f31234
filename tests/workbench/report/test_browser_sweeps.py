"""Reports of verifier skipping where people open them: nothing is cut off, nothing overflows."""

from pathlib import Path

import pytest

from lenity.workbench.report.write import write_report
from lenity.workbench.sweep_offline import offline_report, run_offline
from lenity.workbench.sweep_report import sweep_report
from lenity.workbench.sweep_run import run_sweep
from lenity.workbench.sweep_survival import survival_sweep
from tests.workbench.logs import survival_run
from tests.workbench.report.test_browser import DESK, PHONE, browser, opened, overflow
from tests.workbench.studies import questions_file, study
from tests.workbench.test_sweep_run import settings

pytestmark = pytest.mark.browser

__all__ = ["browser"]


def survival_page(folder: Path) -> Path:
    """The report of recorded blocks."""
    blocks = survival_run(folder / "blocks")
    wanted = [f"{name}:local=0.9,prefix=0.8" for name in ("raw", "marginal", "conditional")]
    run = run_offline(folder / "run", survival_sweep(blocks, wanted, repetitions=3), blocks)
    run.close()
    return write_report(offline_report(run), folder / "report")


def swept_page(folder: Path, preset: str, **changes: object) -> Path:
    """The report of a sweep on a toy target, with a shadow verifier."""
    asked = settings(preset, **{"values": (), "gamma": 4, "shadow": True, **changes})
    run, _ = run_sweep(study(folder / "run", questions_file(folder)), asked)
    run.close()
    return write_report(sweep_report(run), folder / "report")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = {name: tmp_path_factory.mktemp(name) for name in ("survival", "rules", "k_min")}
    rules = (
        "raw:local=0.9,prefix=0.9,min_prefix=2",
        "raw:local=0.5,prefix=0.5",
        "top_k",
        "periodic",
    )
    return {
        "survival": survival_page(made["survival"]),
        "rules": swept_page(made["rules"], "skipping", values=rules),
        "k_min": swept_page(made["k_min"], "min_prefix", skip="raw:local=0.9,prefix=0.9"),
    }


@pytest.mark.parametrize("name", ["survival", "rules", "k_min"])
@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
def test_it_loads_whole_and_nothing_is_cut_off(browser, files, name, screen):
    with opened(browser, files[name], **screen) as page:
        assert page.locator("svg.plot").count() >= 8
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert overflow(page) == []
        outside = page.evaluate(
            """() => [...document.querySelectorAll(".plot text")].filter((t) => {
                const text = t.getBoundingClientRect();
                const plot = t.closest("svg").getBoundingClientRect();
                return text.left < plot.left - 1 || text.right > plot.right + 1
                    || text.top < plot.top - 1 || text.bottom > plot.bottom + 1;
            }).map((t) => t.textContent)"""
        )
        assert outside == []


def test_a_break_even_is_named_in_its_plots(browser, files):
    with opened(browser, files["k_min"], **DESK) as page:
        marks = page.locator("svg.plot text", has_text="K* ")
        assert marks.count() == 4
