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
    assert (knobs.skewed, knobs.slice) == (False, "")


@pytest.mark.parametrize(
    ("text", "per_second"),
    [("14", 14), ("0.8/s", 0.8), ("30/m", 0.5), ("30/min", 0.5), ("9/h", 0.0025), ("864/d", 0.01)],
)
def test_rates(text: str, per_second: float) -> None:
    assert Knobs.read({"RATE": text}).rate.per_second == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"MAILS": "many"}, "MAILS=many: give a whole number"),
        ({"MAILS": "0"}, "nothing to send"),
        ({"RATE": "fast"}, "RATE=fast: write a rate such as"),
        ({"RATE": "0"}, "RATE=0"),
        ({"HEADROOM": "1.2"}, "HEADROOM=1.2: give a share"),
        ({"HEADROOM": "nan"}, "HEADROOM=nan"),
        ({"HEADROOM": "0.985"}, "HEADROOM=0.985: give a share"),
        ({"HEADROOM": "0.99"}, "keep HEADROOM at least 0.01 below GUARD"),
        ({"BURST": "big"}, "BURST=big"),
        *(({"BURST": text}, f"BURST={text}: .* from 1 to 100 ") for text in ("2.5", "1.0", "101", "1e1", "inf", "0")),
        ({"BURST": "2", "RATE": "20/h"}, "from 1 to 1 "),
        ({"RATE": "50000.001"}, "RATE=50000.001: the schedule holds at most 50,000"),
        ({"RATE": "1.0001"}, "at most three decimals"),
        ({"RATE": "999.9/d"}, "decimals go with /s"),
        ({"RATE": "1٣"}, "RATE=1٣"),
        ({"SES_ENDPOINT": "foo"}, "SES_ENDPOINT=foo: give a URL"),
        ({"MAILS": "٣"}, "MAILS=٣: give a whole number"),
        ({"TENANTS": "101"}, "TENANTS=101: give a whole number from 1 to 100"),
        ({"MODEL": "leaky"}, "MODEL=leaky"),
        ({"TENANTS": "0"}, "TENANTS=0"),
        ({"HORIZON": "901"}, "HORIZON=901"),
        *(
            ({"SLICE": text}, f"SLICE={text}: give a share from 0 to 0.5")
            for text in ("0.51", "0.6", "1", "0.", ".1", "0.005", "-0.1", "5%", "0.٣")
        ),
        *(
            ({"SKEW": text, "TENANTS": "2"}, f"SKEW={text}: give a number from 1 to 1,000,000")
            for text in ("0", "0.5", "-2", "much", "1.0001", "1000001", "1e1", "nan", "٣")
        ),
        ({"SKEW": "10"}, "SKEW=10 with one tenant: .* give TENANTS=2 or more, or leave SKEW out"),
        ({"SKEW": "1.001", "TENANTS": "1"}, "SKEW=1.001 with one tenant"),
        (
            {"SKEW": "10", "TENANTS": "3", "MAILS": "30"},
            "SKEW=10 with MAILS=30 and TENANTS=3: .* give MAILS=31 or more",
        ),
        ({"SKEW": "10", "TENANTS": "2", "FILE": __file__}, "SKEW=10 with FILE=.*: .* leave one of them out"),
        ({"FILE": "nowhere.csv"}, "FILE=nowhere.csv: no such file"),
    ],
)
def test_what_is_refused(env: dict[str, str], message: str) -> None:
    with pytest.raises(LocalError, match=message):
        Knobs.read(env)


def test_the_default_headroom_and_guard_are_far_enough_apart() -> None:
    assert Knobs.read({"HEADROOM": "0.98", "GUARD": "0.99"}).headroom == 0.98


@pytest.mark.parametrize(
    "env",
    [
        {"RATE": "20/h"},
        {"RATE": "1"},
        {"RATE": "50000"},
        {"RATE": "14.25"},
        {"RESERVE": "99"},
        {"BURST": "100"},
        {"BURST": "1", "RATE": "0.5"},
        {"TENANTS": "100"},
        *({"SLICE": text} for text in ("0", "0.0", "0.05", "0.4", "0.49", "0.5", "0.50")),
        {"SKEW": "1"},
        {"SKEW": "1.0", "FILE": __file__},
        {"SKEW": "2.5", "TENANTS": "2"},
        {"SKEW": "1000000", "TENANTS": "100"},
    ],
)
def test_what_the_functions_run_with(env: dict[str, str]) -> None:
    Knobs.read(env)


def test_a_run_of_more_than_a_day_is_refused_with_the_arithmetic() -> None:
    knobs = Knobs.read({"RATE": "20/h"})
    knobs.check_duration(470)
    with pytest.raises(LocalError, match=r"3,000 recipients ÷ 0.005444/s .* 153.1 hours, .* at most 470"):
        knobs.check_duration(3000)
