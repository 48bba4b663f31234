from lenity.requests import GenerationSettings

OPTIONS = ("gamma", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop")


def test_help_reads_meaning_and_default_from_the_settings(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERMINAL_WIDTH", "400")
    said = " ".join(run("generate", "--help").stdout.split())
    for name in OPTIONS:
        field = GenerationSettings.model_fields[name]
        default = "none" if field.default in (None, ()) else field.default
        assert f"--{name.replace('_', '-')}" in said
        assert f"{field.description} (default: {default})" in said
