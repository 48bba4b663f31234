import lenity


def test_versions_threads_and_refusals(run, run_json):
    report = run_json("doctor")
    assert report["versions"]["lenity"] == lenity.__version__
    assert report["machine"]["threads"] >= 1
    assert "cpu" in report["machine"]["devices"]
    assert any("asd" in item["what"] for item in report["refused"])
    assert "model" not in report
    said = run("doctor").stdout
    assert "OMP_WAIT_POLICY" in said
    assert "refused" in said


def test_a_model_is_tried(run, run_json, tiny):
    found = run_json("doctor", "--model", tiny)["model"]
    assert found["is_usable"]
    assert found["probe"]["rollback_error"] < found["probe"]["error_without_rollback"]
    assert found["drafters"]["ngram"] == "ready"
    assert found["drafters"]["autoregressive"].startswith("needs model=")
    assert found["drafters"]["self_speculative"].startswith("refused:")
    assert "equals recomputing" in run("doctor", "--model", tiny).stdout


def test_a_model_that_cannot_be_used_is_exit_1(run, run_json, tmp_path):
    found = run_json("doctor", "--model", str(tmp_path), exit_code=1)["model"]
    assert not found["is_usable"]
    assert "config.json" in found["why_not"]
    assert run("doctor", "--model", str(tmp_path)).exit_code == 1


def test_spinning_threads_are_advised_against(run, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert "not PASSIVE" in " ".join(run("doctor").stdout.split())
