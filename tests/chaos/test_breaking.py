"""What breaks things, tried on a Valkey and on processes of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import valkey

from tests.chaos.bed import parked_mail
from tests.chaos.breaking import Delivery, Redis, function_processes
from tests.chaos.events import mail_of
from tests.chaos.rows import ROWS
from tests.chaos.run import chosen, groups
from tests.local.emulator import NOTES
from tests.local.errors import LocalError
from tests.local.processes import Processes
from tests.local.servers import start_valkey
from tests.local.stack import Stack


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with Processes(tmp_path / "logs") as processes:
        url = start_valkey(processes, "127.0.0.1", tmp_path)
        stack = Stack("", "", "", {}, redis_url=url, ses_endpoint="", record=None, pids=processes.pids())
        yield Redis(processes, stack, tmp_path)


def test_killed_it_is_gone_and_back_empty_at_the_same_address(redis: Redis) -> None:
    with redis.client() as client:
        client.set("mark", "sent")
        with redis.away(), pytest.raises(valkey.exceptions.ConnectionError):
            client.get("mark")
    with redis.client() as client:
        assert client.get("mark") is None
    assert len(redis.losses) == 1


def test_flushed_it_forgets_scripts_too(redis: Redis) -> None:
    with redis.client() as client:
        client.set("mark", "sent")
        digest = client.script_load("return 1")
        redis.flush()
        assert client.get("mark") is None
        assert client.script_exists(digest) == [False]


def test_read_only_it_answers_refuses_and_keeps_everything(redis: Redis) -> None:
    with redis.client() as client:
        client.set("mark", "sent")
        with redis.read_only():
            assert client.get("mark") == b"sent"
            with pytest.raises(valkey.exceptions.ReadOnlyError):
                client.set("other", "sent")
            # Time for an attempt to reach the primary that isn't there.
            time.sleep(1.5)
        client.set("other", "sent")
        assert client.get("mark") == b"sent"


def test_frozen_it_keeps_its_connections_and_is_silent(redis: Redis) -> None:
    with redis.client(timeout_seconds=0.3) as impatient:
        impatient.set("mark", "sent")
        with redis.frozen(), pytest.raises(valkey.exceptions.TimeoutError):
            impatient.get("mark")
    with redis.client() as client:
        assert client.get("mark") == b"sent"


def test_only_the_functions_processes_of_that_group_are_found() -> None:
    def run(name: str) -> subprocess.Popen[bytes]:
        env = os.environ | {"AWS_LAMBDA_FUNCTION_NAME": name}
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=env, start_new_session=True)

    children = [run("send"), run("reserve"), run("send")]
    try:
        time.sleep(0.3)
        group = children[0].pid
        assert function_processes(group, "send") == [group]
        assert function_processes(group, "reserve") == []
    finally:
        for child in children:
            child.kill()
            child.wait()


def test_what_was_redelivered_is_read_from_the_emulators_notes(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path / "control.json")
    assert delivery.redelivered() == frozenset()
    notes = ['{"tenant": "acme", "send_id": "1"}', '{"tenant": null, "send_id": null}', '{"tenant": "ac']
    (tmp_path / NOTES).write_text("\n".join(notes))
    assert delivery.redelivered() == {("acme", "1")}


def test_a_parked_mails_key_says_whose_it_is() -> None:
    key = "parked/acme/1796083200000-uncertain-bulk-order-1-of-2.json"
    assert parked_mail(key) == (("acme", "order-1-of-2"), "uncertain")
    with pytest.raises(LocalError, match="not a key of a parked mail"):
        parked_mail("parked/acme/order-1.json")


def test_an_event_names_its_mail() -> None:
    detail = {"mail": {"tags": {"tenant": ["acme"], "send_id": ["order-1"], "ses:operation": ["SendEmail"]}}}
    assert mail_of(detail) == ("acme", "order-1")
    assert mail_of({"mail": {"tags": {}}}) is None


def test_rows_have_names_of_their_own_and_the_short_form_is_some_of_them() -> None:
    names = [row.fault for row in ROWS]
    assert len(set(names)) == len(names)
    quick = chosen(quick=True, only="")
    assert quick
    assert len(quick) < len(ROWS)
    assert [row.fault for row in chosen(quick=True, only="frozen")] == ["Valkey frozen for 20 s"]
    with pytest.raises(LocalError, match="CHAOS_ROWS=melted"):
        chosen(quick=False, only="melted")


def test_rows_are_settled_together_only_under_the_same_policies() -> None:
    for group in groups(ROWS):
        assert len({(row.redis_down, row.uncertain, row.events) for row in group}) == 1
    names = [[row.fault for row in group] for group in groups(ROWS)]
    assert ["Valkey flushed"] in names
    assert ["Valkey killed and 20 % delivered twice, park", "Valkey flushed and 20 % delivered twice, park"] in names
    assert sum(map(len, names)) == len(ROWS)
