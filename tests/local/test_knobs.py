"""Each knob's errors say which knob, what was wrong and what to write instead."""

from __future__ import annotations

import pytest

from tests.local.errors import LocalError
from tests.local.knobs import Knobs


def test_defaults() -> None:
    knobs = Knobs.read({"RATE": ""})
    assert (knobs.mails, knobs.rate.text, knobs.rate.per_second, knobs.budget_per_second) == (3000, "100/s", 100, 98)
    assert (knobs.guard, knobs.burst, knobs.reserve.text, knobs.model) == (0.99, "", "2/s", "bucket")
    assert knobs.tenant_names() == ["tenant-1"]


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("14", 14), ("0.8/s", 0.8), ("30/m", 0.5), ("30/min", 0.5), ("9/h", 0.0025), ("864/d", 0.01)],
)
def test_rates(text: str, per_second: float) -> None:
    assert Knobs.read({"RATE": text, "RESERVE": "0"}).rate.per_second == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"MAILS": "many"}, "MAILS=many: give a whole number"),
        ({"MAILS": "0"}, "nothing to send"),
        ({"RATE": "fast"}, "RATE=fast: write a rate such as"),
        ({"RATE": "0"}, "RATE=0"),
        ({"HEADROOM": "1.2"}, "HEADROOM=1.2: give a share"),
        ({"HEADROOM": "nan"}, "HEADROOM=nan"),
        ({"HEADROOM": "0.985"}, "keep HEADROOM at least 0.01 below GUARD"),
        ({"BURST": "0.5"}, "BURST=0.5"),
        ({"BURST": "big"}, "BURST=big"),
        ({"RESERVE": "99"}, "RESERVE=99/s: more than the budget of 98/s"),
        ({"MODEL": "leaky"}, "MODEL=leaky"),
        ({"TENANTS": "0"}, "TENANTS=0"),
        ({"HORIZON": "901"}, "HORIZON=901"),
        ({"FILE": "nowhere.csv"}, "FILE=nowhere.csv: no such file"),
    ],
)
def test_what_is_refused(env: dict[str, str], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        Knobs.read(env)


def test_the_default_headroom_and_guard_are_far_enough_apart() -> None:
    assert Knobs.read({"HEADROOM": "0.98", "GUARD": "0.99"}).headroom == 0.98
