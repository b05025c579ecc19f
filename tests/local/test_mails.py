"""Reading real requests, and cutting them into SQS's batches."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.local.errors import LocalError
from tests.local.knobs import Knobs
from tests.local.mails import Plan, made_up, read
from tests.local.producer import batches


def test_csv_columns_become_a_request(tmp_path: Path) -> None:
    file = tmp_path / "mails.csv"
    file.write_text(
        "send_id,tenant,lane,from,to,subject,text,template,data.name\n"
        'a,,,me@example.com,x@example.com; y@example.com,Hi,"two\nlines",,\n'
        "b,acme,priority,me@example.com,z@example.com,,,welcome,Zoë\n"
    )
    first, second = read(file, "tenant-1")
    assert (first.key, first.lane) == (("tenant-1", "a"), "bulk")
    assert json.loads(first.body) == {
        "send_id": "a",
        "tenant": "tenant-1",
        "from": "me@example.com",
        "to": ["x@example.com", "y@example.com"],
        "content": {"simple": {"subject": "Hi", "text": "two\nlines"}},
    }
    assert (second.key, second.lane) == (("acme", "b"), "priority")
    assert json.loads(second.body)["content"] == {"template": {"name": "welcome", "data": {"name": "Zoë"}}}


def test_json_lines_are_handed_in_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "mails.jsonl"
    request = {"send_id": "a", "tenant": "acme", "anything": {"else": 1}}
    file.write_text(json.dumps(request) + "\n\n")
    [mail] = read(file, "tenant-1")
    assert json.loads(mail.body) == request


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("m.jsonl", "{}\n", "line 1: no send_id"),
        ("m.jsonl", '\n{"send_id": \n', "line 2: not JSON"),
        ("m.jsonl", "[1]\n", "line 1: not a JSON object"),
        ("m.jsonl", '{"send_id":"a","tenant":"a b"}\n', "tenant 'a b' is not"),
        ("m.jsonl", '{"send_id":"a","lane":"slow"}\n', "lane 'slow' has no queue"),
        ("m.jsonl", '{"send_id":"a"}\n{"send_id":"a"}\n', "line 2: send_id 'a' is on line 1 already"),
        ("m.jsonl", "\n", "no requests in it"),
        ("m.csv", "send_id,colour\na,red\n", "column 'colour' is not one of"),
        ("m.csv", "send_id\na,b\n", "line 2: more fields than columns"),
    ],
)
def test_a_bad_file_is_refused_before_anything_starts(tmp_path: Path, name: str, text: str, message: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(LocalError, match=message):
        list(read(file, "tenant-1"))


def test_mail_is_spread_over_the_tenants() -> None:
    plan = Plan.of(Knobs.read({"MAILS": "10", "TENANTS": "3", "PRIORITY": "4"}))
    assert (len(plan), plan.recipients) == (14, 14)
    assert {tenant: sum(mail.key[0] == tenant for mail in plan.burst) for tenant in plan.tenants} == {
        "tenant-1": 4,
        "tenant-2": 3,
        "tenant-3": 3,
    }
    assert {mail.lane for mail in plan.urgent} == {"priority"}


@pytest.mark.parametrize(
    ("mails", "tenants", "skew", "big", "each"),
    [
        (3000, 3, "10", 2500, 250),
        (3000, 2, "1.5", 1800, 1200),
        (1000, 4, "7", 700, 100),
        (1001, 4, "7", 701, 100),
        (1009, 4, "7", 709, 100),
        (3000, 5, "1000", 2960, 10),
        (31, 3, "1.001", 11, 10),
        (5000, 100, "1000000", 4010, 10),
    ],
)
def test_skew_divides_the_mails(mails: int, tenants: int, skew: str, big: int, each: int) -> None:
    plan = Plan.of(Knobs.read({"MAILS": str(mails), "TENANTS": str(tenants), "SKEW": skew, "PRIORITY": "7"}))
    others = [f"tenant-{number}" for number in range(2, tenants + 1)]
    assert (plan.big, plan.tenants) == ("tenant-1", ["tenant-1", *others])
    assert Counter(mail.key[0] for mail in plan.burst) == {"tenant-1": big}
    assert Counter(mail.key[0] for mail in plan.trickle) == dict.fromkeys(others, each)
    assert {mail.lane for mail in plan.burst + plan.trickle} == {"bulk"}
    assert (len(plan), plan.recipients, len(plan.urgent)) == (mails + 7, mails + 7, 7)
    everything = plan.burst + plan.trickle + plan.urgent
    assert len({mail.key[1] for mail in everything}) == len(everything), "each mail has a send id of its own"


def test_the_trickle_is_even_in_time_and_over_the_tenants() -> None:
    knobs = Knobs.read({"MAILS": "3000", "TENANTS": "4", "SKEW": "7", "RATE": "50", "HEADROOM": "0.8", "GUARD": "0.9"})
    plan = Plan.of(knobs)
    assert len(plan.trickle) * plan.trickle_seconds == pytest.approx(3000 / (50 * 0.8))
    assert plan.trickle_seconds == pytest.approx(75 / 900)
    tenants = [mail.key[0] for mail in plan.trickle]
    assert tenants == ["tenant-2", "tenant-3", "tenant-4"] * 300
    numbers = [mail.key[1] for mail in plan.burst + plan.trickle]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("env", [{}, {"TENANTS": "3"}, {"TENANTS": "3", "SKEW": "1"}])
def test_without_skew_all_is_handed_in_at_once(env: dict[str, str]) -> None:
    plan = Plan.of(Knobs.read(env))
    assert (len(plan.burst), plan.trickle, plan.big) == (3000, [], None)


def test_batches_are_cut_by_count_and_by_bytes() -> None:
    small = [made_up("bulk", number, "t") for number in range(25)]
    assert [len(batch) for batch in batches(small)] == [10, 10, 5]
    large = [replace(mail, body="x" * 400_000) for mail in small[:5]]
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]
    assert list(batches([])) == []
