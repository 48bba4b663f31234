"""lm-eval's harness over lenity's decoder: the model "lenity", for tasks that generate text.

Importing this module registers the model. lm-eval looks for no plug-ins of its own accord, so that
its command line with the model registered is ``python -m lenity.integrations.lm_eval``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lenity.engine.decode import Decoder
from lenity.errors import ConfigError, MissingExtraError
from lenity.registry import did_you_mean
from lenity.requests import GenerationSettings, Request
from lenity.types import FinishReason, Generation
from lenity.workbench.arms import to_record
from lenity.workbench.jobs import Job
from lenity.workbench.metrics import rates
from lenity.workbench.operating_point import generation_changes, load_operating_point
from lenity.workbench.point_decoder import decoder_at
from lenity.workbench.records import SampleRecord

try:
    import lm_eval.models  # noqa: F401  (else lenity alone would pass for a filled registry)
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
    from tqdm import tqdm
except ImportError as missing:
    raise MissingExtraError(
        f"Expected lm-eval beside lenity, got: {missing}. Install it: pip install 'lenity[lm-eval]'"
    ) from None

MAX_GEN_TOKS = 256
"""New tokens of a request whose task does not say; lm-eval's own backends take as many."""
LENGTH_NAMES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""What tasks call the bound on new tokens; the first one given counts, as elsewhere in lm-eval."""
PASSED_ON = ("top_k", "top_p", "min_p", "repetition_penalty")
"""Settings that mean the same in both; under greedy decoding filters change nothing."""
UNASKED_DEVICE = "cuda:0"
"""What lm-eval's command line passes where nobody named a device, GPU or none."""
SUMMARY = ("relaxed_share", "regret_per_request", "tokens_per_target_pass")
"""Rates of ``workbench.metrics`` in the summary."""


@register_model("lenity")
class LenityLM(LM):
    """A target under a drafter and a policy, or at an operating point, as lm-eval asks models.

    ``model_args``: ``operating_point=FILE``, or ``target=NAME`` with ``drafter``, ``policy``,
    ``gamma``, ``dtype`` and ``revision``. A spec with a comma in it needs model_args as JSON.
    """

    def __init__(
        self,
        *,
        operating_point: str | None = None,
        target: str | None = None,
        device: str | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        """Load the models. Raises ConfigError, and what loading and operating points raise."""
        super().__init__()
        if (operating_point is None) == (target is None):
            raise ConfigError(
                f"Expected either operating_point=FILE or target=NAME among model_args, got "
                f"{'neither' if target is None else 'both'}. Give one of them."
            )
        if max_batch_size is not None:
            raise ConfigError(
                f"Expected batch_size alone, got max_batch_size={max_batch_size}. lenity looks "
                f"for no batch size itself: requests enter its batch as others end."
            )
        size, device = _batch_size(batch_size), _device(device)
        if operating_point is not None:
            _refuse_unknown(options, ())
            self.decoder, self.gamma = _at_point(Path(operating_point), device, size)
        else:
            assert target is not None
            self.decoder, self.gamma = _of_parts(target, options, device, size)
        if self.decoder.target.tokenizer is None:
            raise ConfigError(
                f"Expected a target with a tokenizer, got {self.decoder.target.name}, which has "
                f"none. Load it with the tokenizer it was trained with."
            )
        self.seed, self.records = seed, list[SampleRecord]()
        self._rendered: set[str] = set()

    @property
    def tokenizer(self) -> Any:
        """Return the tokenizer of transformers behind the target's."""
        return getattr(self.decoder.target.tokenizer, "tokenizer", self.decoder.target.tokenizer)

    @property
    def tokenizer_name(self) -> str:
        """Return what lm-eval keeps rendered requests under, template and all."""
        return str(self.decoder.target.name).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template's text, for lm-eval's record. Raises ConfigError without one."""
        if chat_template is False:
            return None
        self._check_template()
        name = chat_template if isinstance(chat_template, str) else None
        return str(self.tokenizer.get_chat_template(name))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return a conversation as text; without a generation prompt its last turn is gone on."""
        self._check_template()
        text = str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
            )
        )
        self._rendered.add(text)
        return text

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return each request's new text, without the string that ended it.

        A request is known by its ``args``: the prompt, and lm-eval's generation settings. Raises
        ConfigError for settings that cannot be honoured, before anything is decoded.
        """
        asked = [(str(r.args[0]), dict(r.args[1])) for r in requests]
        own = [
            Request(prompt=self._encode(prompt), settings=self._settings(wanted, index))
            for index, (prompt, wanted) in enumerate(asked)
        ]
        texts = [""] * len(own)
        with tqdm(total=len(own), disable=disable_tqdm, desc="lenity") as bar:
            for chunk in self.decoder.stream(own) if own else ():
                if chunk.generation is not None:
                    texts[chunk.index] = self._finished(chunk.generation, asked[chunk.index])
                    bar.update()
        return texts

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Refuse. Raises ConfigError."""
        raise _no_likelihoods("loglikelihood")

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> Any:
        """Refuse. Raises ConfigError."""
        raise _no_likelihoods("loglikelihood_rolling")

    @property
    def summary(self) -> dict[str, float | int | None]:
        """Return what all requests so far gave away and took.

        ``requests``; ``relaxed_share``: relaxed / emitted tokens; ``regret_per_request``, nats;
        ``tokens_per_target_pass``. None where there is nothing to divide by.
        """
        found = rates(self.records)
        return {"requests": len(self.records), **{name: found[name].pooled for name in SUMMARY}}

    def get_model_info(self) -> dict[str, Any]:
        """Return what lm-eval puts into its results: what decoded, and what it gave away."""
        decoder = self.decoder
        return {
            "lenity_target": decoder.target.name,
            "lenity_drafter": decoder.drafter.spec if decoder.drafter is not None else None,
            "lenity_policy": decoder.policy.spec,
            "lenity_gamma": self.gamma,
            "lenity_ledger": self.summary,
        }

    def _check_template(self) -> None:
        if not getattr(self.tokenizer, "chat_template", None):
            raise ConfigError(
                f"Expected a target with a chat template, got {self.decoder.target.name}, which "
                f"has none. Leave out --apply_chat_template, or take a target trained to chat."
            )

    def _encode(self, prompt: str) -> list[int]:
        """Return a prompt's ids; a template has put in the special tokens there are to be."""
        tokenizer = self.tokenizer
        opening = getattr(tokenizer, "bos_token", None)
        if prompt in self._rendered or (opening and prompt.startswith(opening)):
            return list(tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"])
        assert self.decoder.target.tokenizer is not None
        return list(self.decoder.target.tokenizer.encode(prompt))

    def _settings(self, wanted: dict[str, Any], index: int) -> GenerationSettings:
        given = dict(wanted)
        lengths = [value for name in LENGTH_NAMES if (value := given.pop(name, None)) is not None]
        until = given.pop("until", None) or ()
        stops, stop_ids = self._stops((until,) if isinstance(until, str) else tuple(until))
        settings: dict[str, Any] = {
            "gamma": self.gamma,
            "max_new_tokens": int(lengths[0]) if lengths else MAX_GEN_TOKS,
            "stop": stops,
            "stop_token_ids": stop_ids,
            "temperature": _temperature(given),
            "seed": self.seed + index,
        }
        for name in PASSED_ON:
            value = given.pop(name, None)
            if value is not None:
                settings[name] = value
        if given:
            raise ConfigError(
                f"Expected generation settings that lenity can honour, got "
                f"{', '.join(f'{name}={value!r}' for name, value in given.items())}. Known are "
                f"until, do_sample, temperature, {', '.join((*LENGTH_NAMES, *PASSED_ON))}: leave "
                f"others out with --gen_kwargs or in the task."
            )
        return GenerationSettings.of(None, settings)

    def _stops(self, until: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return strings that end a text, and special tokens that do, which no text shows."""
        special = getattr(self.tokenizer, "all_special_tokens", ())
        names = [text for text in until if text in special]
        ids = [self.tokenizer.convert_tokens_to_ids(name) for name in names]
        return tuple(text for text in until if text not in names), tuple(ids)

    def _finished(self, generation: Generation, asked: tuple[str, dict[str, Any]]) -> str:
        if generation.finish_reason is FinishReason.INTERRUPTED:
            raise KeyboardInterrupt  # which the decoder answered by returning what it had
        name = str(len(self.records))
        job = Job(task="lm_eval", item_id=name, prompt_ids=generation.prompt_ids)
        self.records.append(to_record(generation, "lm_eval", job))
        text = generation.text or ""
        self.cache_hook.add_partial("generate_until", asked, text)
        return text


def _batch_size(value: int | str | None) -> int | None:
    """Return requests decoded together; none where nobody said. Raises ConfigError."""
    if value is None:
        return None
    if not str(value).isdecimal() or int(value) < 1:
        raise ConfigError(
            f"Expected batch_size as a number of requests, got {value!r}. lenity looks for none "
            f"itself; give one that fits, such as 8."
        )
    return int(value)


def _device(name: str | None) -> str | None:
    """Return where to load: what lm-eval's command line says unasked leaves the choice to us."""
    return None if name == UNASKED_DEVICE else name


def _at_point(file: Path, device: str | None, size: int | None) -> tuple[Decoder, int]:
    point = load_operating_point(file)
    if size not in (None, 1, point.batch_size):  # 1 is what lm-eval says where nobody does
        raise ConfigError(
            f"Expected the operating point's own batch size, {point.batch_size}, got {size}. Leave "
            f"batch_size out: another one is another point."
        )
    return decoder_at(point, device=device), int(generation_changes(point)["gamma"])


def _of_parts(
    target: str, options: dict[str, Any], device: str | None, size: int | None
) -> tuple[Decoder, int]:
    from lenity.models import load

    _refuse_unknown(options, ("drafter", "policy", "gamma", "dtype", "revision"))
    gamma = options.get("gamma")
    decoder = Decoder(
        target=load(
            target, device=device, dtype=options.get("dtype"), revision=options.get("revision")
        ),
        drafter=options.get("drafter"),
        policy=options.get("policy", "strict"),
        max_batch_size=size or 1,
    )
    chosen = {} if gamma is None else {"gamma": gamma}
    return decoder, GenerationSettings.of(None, chosen).gamma


def _refuse_unknown(options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise ConfigError(
                f"Expected model_args among {', '.join(known) or 'operating_point, seed'}, got "
                f"{name}={options[name]!r}.{did_you_mean(name, known)} What an operating point "
                f"decides cannot stand beside it; a spec with a comma in it needs model_args as "
                f'JSON, such as {{"policy": "asd:budget=8,gate=0.25"}}.'
            )


def _temperature(given: dict[str, Any]) -> float:
    """Take do_sample and temperature out of the settings; return what divides the logits."""
    is_drawn, temperature = given.pop("do_sample", None), given.pop("temperature", None)
    value = float(temperature or 0.0)
    if is_drawn and value == 0:
        raise ConfigError(
            f"Expected a temperature above 0 beside do_sample=True, got {temperature}. Say "
            f"temperature=1.0 to sample, or do_sample=False to decode greedily."
        )
    return 0.0 if is_drawn is False else value


def _no_likelihoods(name: str) -> ConfigError:
    return ConfigError(
        f"Expected a task that generates text (generate_until), got one that asks for "
        f"{name}. The likelihood of a given text is the target's alone: no drafter and no policy "
        f'has a part in it, so that its score would say nothing of them. Use lm-eval\'s model "hf" '
        f"for it, or a generative variant of the task."
    )


def main() -> None:
    """Run lm-eval's command line, with this model registered."""
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()


if __name__ == "__main__":
    main()
