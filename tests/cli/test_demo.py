import pytest

ARGUMENTS = ("demo", "--drafter", "ngram", "--prompts", "1", "-n", "12")


def test_the_document_holds_both_sections(run_json, tiny):
    report = run_json(*ARGUMENTS, "--model", tiny)
    exact, wide = report["sections"]
    assert report["failures"] == []
    assert [row["arm"] for row in exact["arms"]] == ["plain", "strict", "asd", "priced"]
    assert (exact["dtype"], wide["dtype"]) == ("float32", "bfloat16")
    assert exact["strict_equals_plain"] == {"equal": 1, "of": 1}
    assert set(exact["pass_seconds"]) == {"width_1", "width_5"}
    assert set(wide["pass_seconds"]) == {"width_1", "width_8"}
    for row in exact["arms"]:
        assert row["emitted"] == 12
        assert row["budget_nats"] is None or row["regret_spent_nats"] <= row["budget_nats"]
    assert exact["arms"][0]["ratio_to_plain"] == exact["arms"][1]["ratio_to_strict"] == 1


def test_people_see_tables_reasons_and_a_receipt(run, tiny):
    done = run(*ARGUMENTS, "--model", tiny)
    assert done.exit_code == 0
    said = " ".join(done.stdout.split())
    assert "token for token in 1 of 1 answers (asserted)" in said
    assert "A target pass over 1 token takes" in said
    assert "priced" in said
    assert "plain rounds" in said
    assert "receipt of one answer under asd" in said


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_where_no_bar_is_seen_every_stage_says_a_line(run, tiny, options):
    done = run(*ARGUMENTS, "--model", tiny, *options)
    assert done.stderr.splitlines() == [
        f"Loading {tiny}",
        "Decoding 1 prompt 4 ways in float32, drafter ngram, arms taking turns",
        "Decoding 2 prompts 2 ways in bfloat16, drafter ngram, arms taking turns",
        "Measuring what a target pass costs",
    ]


@pytest.mark.parametrize("drafter", ["ngam", "self_speculative"])
def test_a_drafter_that_cannot_draft_is_exit_2(run, tiny, drafter):
    done = run("demo", "--drafter", drafter, "--model", tiny)
    assert done.exit_code == 2
    assert done.stdout == ""
