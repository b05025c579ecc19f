"""The picture holds what arrived, and is well-formed whatever arrived."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from tests.local.chart import nice_step, per_second, svg
from tests.local.page import MEANING, html
from tests.local.report import Arrival, HandedIn, report


def arrivals(seconds: int, rate: int) -> list[Arrival]:
    return [
        Arrival.of(
            {
                "at_ms": 1_700_000_000_000 + 1000 * n / rate,
                "recipients": 1,
                "outcome": "throttled" if n % 50 == 49 else "accepted",
                "send_id": f"m{n}",
                "tenant": "acme",
                "lane": "priority" if n % 10 == 0 else "bulk",
            }
        )
        for n in range(seconds * rate)
    ]


def result(of: list[Arrival], limit: float = 20, big: str | None = None) -> dict[str, object]:
    taken = {a.key: HandedIn(a.lane, 1_700_000_000_000) for a in of}
    return report(mails=len(of), handed_in=taken, arrivals=of, limit_per_second=limit,
                  budget_per_second=limit * 0.98, redis_calls=1, big=big)  # fmt: skip


@pytest.mark.parametrize(("seconds", "rate"), [(1, 1), (30, 20), (400, 3), (5000, 1)])
def test_bars_add_up_to_what_arrived(seconds: int, rate: int) -> None:
    made = arrivals(seconds, rate)
    width, bars = per_second(made)
    assert len(bars) <= 150
    assert sum(sum(bar.values()) for bar in bars) * width == pytest.approx(len(made))


@pytest.mark.parametrize("made", [[], arrivals(1, 1), arrivals(30, 20), arrivals(5000, 1)], ids=len)
@pytest.mark.parametrize("limit", [0.8, 20, 10_000])
def test_the_picture_is_well_formed(made: list[Arrival], limit: float) -> None:
    of_run = result(made, limit)
    root = ET.fromstring(svg(of_run, made))
    drawn = {element.get("class") for element in root.iter()} - {None}
    assert {"limit", "budget"} <= drawn
    assert ("throttled" in drawn) == any(a.outcome == "throttled" for a in made)
    assert "<svg" in html(of_run, svg(of_run, made))
    beside_a_big_one = result(made, limit, big="acme")
    assert "rest_p99_ms" in html(beside_a_big_one, svg(beside_a_big_one, made))


def test_every_field_has_its_meaning() -> None:
    assert list(MEANING) == list(result([], big="acme"))


@pytest.mark.parametrize(("span", "most", "step"), [(105, 5, 50), (1, 10, 0.1), (31, 10, 5), (100, 10, 10)])
def test_steps_are_round(span: float, most: int, step: float) -> None:
    assert nice_step(span, most) == pytest.approx(step)
