"""What stands beneath a figure."""

from lenity.workbench.intervals import Interval
from lenity.workbench.report.data import Setting
from lenity.workbench.report.figure import caption, intervals_in, intervals_told
from lenity.workbench.report.plot_data import Latency, LatencyOfArm
from tests.workbench.report.sample import frontier, interval

SETTING = Setting(models="toy, ngram", hardware="abacus")


def latency(**more):
    arm = LatencyOfArm(
        arm="a", draft_seconds=1, target_seconds=2, verify_seconds=0, commit_seconds=0
    )
    return Latency(protocol="fixed work", arms=(arm,), **more)


def test_a_caption_names_protocol_models_and_hardware():
    assert caption(latency(), SETTING) == "fixed work. toy, ngram. abacus."


def test_a_plot_of_another_setting_says_so():
    plot = latency(models="other", hardware="wheel", run_id="audit-1", note="Look here!")
    told = caption(plot, SETTING, "One lies outside")
    assert told == "One lies outside. Look here! fixed work. other. wheel. Run audit-1."


def test_every_interval_is_found_and_told_once_a_method():
    plot = frontier()
    found = list(intervals_in(plot))
    assert len(found) == 3 * 7
    assert "95 % intervals: bootstrap over prompts" in caption(plot, SETTING)
    mixed = [interval(1, 1, 4, "t"), interval(1, 1, 9, "t"), interval(1, 1, 4, "b")]
    assert intervals_told(mixed) == "95 % intervals: t, n = 4 to 9; 95 % intervals: b, n = 4"
    assert intervals_told([]) is None


def test_another_confidence_is_told():
    made = Interval(estimate=0, low=0, high=0, confidence=0.9, method="t", num_units=3)
    assert intervals_told([made]) == "90 % intervals: t, n = 3"
