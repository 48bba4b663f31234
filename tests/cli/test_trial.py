from lenity.cli.trial import Arm, cost_of_pass, take_turns
from lenity.engine.decode import Decoder
from lenity.requests import GenerationSettings
from tests.toys import ScriptedDrafter, TableModel, cycle_model, oracle


def arms(model: TableModel) -> list[Arm]:
    drafter = ScriptedDrafter(type="scripted", script=oracle(model))
    return [
        Arm(name="plain", decoder=Decoder(target=model)),
        Arm(name="asd", decoder=Decoder(target=model, drafter=drafter, policy="asd:budget=3")),
    ]


def test_arms_decode_every_prompt_and_the_warm_up_is_not_counted():
    pair, turns = arms(cycle_model()), []
    settings = GenerationSettings(max_new_tokens=9, gamma=2)
    take_turns(pair, [[1], [2, 3], [4]], settings, lambda: turns.append(1))
    plain, asd = (arm.totals for arm in pair)
    assert len(turns) == 6
    assert plain.emitted == asd.emitted == 27
    assert (plain.target_passes, asd.target_passes) == (27, 9)
    assert asd.seconds > 0
    prompts = [generation.prompt_ids for generation in pair[0].generations]
    assert prompts == [(1,), (2, 3), (4,)]
    assert [g.token_ids for g in pair[0].generations] == [g.token_ids for g in pair[1].generations]


def test_every_prompt_begins_with_another_arm():
    model, order = cycle_model(), []

    def say(name):
        def script(ids, limit):
            order.append(name)
            return []

        return ScriptedDrafter(type="scripted", script=script)

    pair = [Arm(name=n, decoder=Decoder(target=model, drafter=say(n))) for n in "ab"]
    take_turns(pair, [[1], [2]], GenerationSettings(max_new_tokens=2))
    assert "".join(order).replace("a" * 3, "a").endswith("abba")


def test_the_budget_is_the_policys():
    plain, asd = arms(cycle_model())
    assert (plain.budget, asd.budget) == (None, 3)


def test_a_pass_costs_something_and_leaves_nothing():
    model = cycle_model()
    costs = cost_of_pass(model, (1, 3), context=4, repeats=2)
    assert list(costs) == [1, 3]
    assert all(seconds > 0 for seconds in costs.values())
    assert model.num_forwards == 1 + 2 * 3  # the context; every width, the uncounted one too
