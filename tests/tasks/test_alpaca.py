from lenity.tasks import task


def test_seed_tasks_and_generated_ones(data):
    seed, generated = task("alpaca").load(data)
    assert seed.id == "alpaca/seed_task_0"
    assert seed.messages[0]["content"] == "Name the mood.\n\nWhat a day!"
    assert (seed.family, seed.reference) == ("classification", "happy")
    assert generated.id == "alpaca/1"
    assert generated.prompt == "Instruction: Invent a word.\n\nResponse:"
    assert (generated.family, generated.reference) == ("all", "blorp")
    assert not task("alpaca").has_scorer
