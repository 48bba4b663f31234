import threading

import pytest
import torch
from torch import nn

from lenity.errors import ConfigError
from lenity.models.hidden import tapped


class _Doubling(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        return 2 * x, None


def _layers() -> list[nn.Module]:
    return [nn.Identity(), _Doubling(), nn.ReLU()]


def _run(layers: list[nn.Module], x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        out = layer(x)
        x = out[0] if isinstance(out, tuple) else out
    return x


def test_outputs_come_in_the_order_asked_for():
    layers, x = _layers(), torch.ones(1, 2, 3)
    with tapped(layers, (1, 0)) as found:
        _run(layers, x)
    assert torch.equal(found.features(), torch.cat([2 * x, x], dim=-1))


def test_a_tap_may_be_asked_for_twice():
    layers, x = _layers(), torch.ones(1, 2, 3)
    with tapped(layers, (0, 0)) as found:
        _run(layers, x)
    assert torch.equal(found.features(), torch.cat([x, x], dim=-1))


def test_no_taps_no_features():
    with tapped(_layers(), ()) as found:
        pass
    assert found.features() is None


def test_hooks_are_removed_even_after_an_error():
    layers = _layers()

    def fail() -> None:
        with tapped(layers, (0, 2)):
            raise RuntimeError("forward failed")

    with pytest.raises(RuntimeError, match="forward failed"):
        fail()
    assert all(not layer._forward_hooks for layer in layers)


def test_the_embedding_tap_is_what_enters_the_first_layer():
    layers, x = [_Doubling(), nn.ReLU()], torch.ones(1, 2, 3)
    with tapped(layers, (-1, 0)) as found:
        _run(layers, x)
    assert torch.equal(found.features(), torch.cat([x, 2 * x], dim=-1))
    assert not layers[0]._forward_pre_hooks


@pytest.mark.parametrize("tap", [-2, 4])
def test_a_tap_must_be_a_layer(tap: int):
    with pytest.raises(ConfigError, match="between -1 and 3"), tapped(_layers(), (tap,)):
        pass


def test_another_threads_forward_is_not_recorded():
    layers, x = _layers(), torch.ones(1, 2, 3)
    with tapped(layers, (0,)) as found:
        _run(layers, x)
        other = threading.Thread(target=_run, args=(layers, 7 * x))
        other.start()
        other.join()
    assert torch.equal(found.features(), x)
