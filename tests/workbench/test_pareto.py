from hypothesis import given
from hypothesis import strategies as st

from lenity.workbench.pareto import Point, choose, dominates, frontier, place


def point(name: str, quality: float, gain: float, **changes: object) -> Point:
    return Point(name=name, quality=quality, gain=gain, **changes)


A = point("a", 0.0, 0.05)
B = point("b", -0.005, 0.10)
C = point("c", -0.02, 0.15)
D = point("d", -0.01, 0.08)  # b is better and faster
LOOPS = point("loops", 0.0, 0.40, failed=("loop",))


def test_what_another_beats_in_both_is_dominated():
    placed = place([A, B, C, D])
    assert [(p.point.name, p.dominated_by) for p in placed] == [
        ("c", None),
        ("b", None),
        ("d", "b"),
        ("a", None),
    ]
    assert [p.is_on_frontier for p in placed] == [True, True, False, True]
    assert [p.name for p in frontier([A, B, C, D])] == ["c", "b", "a"]


def test_equal_points_stand_on_the_frontier_together():
    twin = point("b2", B.quality, B.gain)
    assert not dominates(B, twin)
    assert not dominates(twin, B)
    assert [p.name for p in frontier([twin, B, D])] == ["b", "b2"]


def test_a_tie_in_one_is_broken_by_the_other():
    slower, worse = point("s", B.quality, 0.09), point("w", -0.006, B.gain)
    assert dominates(B, slower)
    assert dominates(B, worse)
    assert frontier([B, slower, worse]) == (B,)


def test_a_point_that_fails_a_gate_dominates_nothing_and_is_never_chosen():
    placed = {p.point.name: p for p in place([LOOPS, A])}
    assert placed["a"].is_on_frontier
    assert placed["loops"].is_on_frontier
    assert frontier([LOOPS, A]) == (A,)
    assert choose([LOOPS, A]).point == A


def test_the_fastest_within_the_margin_is_chosen():
    choice = choose([A, B, C, D])
    assert choice.point == B
    assert choice.eligible == ("b", "d", "a")  # d is at the margin itself
    assert choice.rule.startswith("highest gain above 0 with quality not worse than -0.01")
    assert choose([A, B, C], margin=0.03).point == C


def test_ties_go_to_the_better_then_to_the_first_name():
    better = point("z", 0.0, B.gain)
    assert choose([B, better]).point == better
    assert choose([point("y", 0.0, 0.1), better]).point.name == "y"


def test_nothing_is_chosen_where_strict_is_best():
    choice = choose([point("slow", 0.0, -0.01), point("same", 0.0, 0.0), C, LOOPS])
    assert (choice.point, choice.eligible) == (None, ())
    assert choose([]).point is None


POINTS = st.lists(
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)).map(
        lambda t: point(f"{t[0]}/{t[1]}", float(t[0]), float(t[1]))
    ),
    max_size=8,
)


@given(POINTS)
def test_a_point_is_off_the_frontier_exactly_if_one_on_it_dominates(points):
    best = frontier(points)
    for one in points:
        assert (one in best) != any(dominates(other, one) for other in best)
