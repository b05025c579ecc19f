"""Dead letters go again beside live mail, at their own rate, each once, though whoever drives it is killed.

REDRIVE_LETTERS says how many; a third has been redriven when the command and the function are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos.breaking import function_processes
from tests.local.knobs import Knobs
from tests.local.paths import OUT, ROOT
from tests.local.processes import end_cleanly_on_signals
from tests.local.report import Key
from tests.local.stack import Stack, running
from tests.stack.desk import Desk, key, request, times_sent, wait_until

LETTERS = int(os.environ.get("REDRIVE_LETTERS", "300"))
RATE = 100
KNOBS = {"RATE": str(RATE), "HEADROOM": "0.98", "GUARD": "0.99", "RESERVE": "0", "TENANTS": "2"}
LIVE, OLD = "tenant-1", "tenant-2"
LIVE_PER_SECOND = 60
REDRIVEN_PER_SECOND = 20
#: Live mail alone, before: as long as the redrive lasts, within bounds.
BEFORE_SECONDS = min(max(LETTERS / REDRIVEN_PER_SECOND, 20), 120)
WINDOW_SECONDS = 5
#: What may go at once at first, and again where another takes over: a second's worth each.
ALLOWANCE = 2 * REDRIVEN_PER_SECOND
CLI = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "debug" / "sendslot"


class Live(threading.Thread):
    """Hands in live mail at a steady pace, and knows when."""

    def __init__(self, stack: Stack, send_id: Callable[[], str]) -> None:
        super().__init__(daemon=True)
        self._sqs: Any = stack.client("sqs")
        self._url = stack.outputs["BulkIntakeQueueUrl"]
        self._send_id = send_id
        self._ended = threading.Event()
        #: When each was handed in, ms.
        self.handed_in: dict[Key, float] = {}

    def run(self) -> None:
        part = 0.1
        due = time.monotonic()
        while not self._ended.is_set():
            made = [request(self._send_id(), LIVE) for _ in range(round(LIVE_PER_SECOND * part))]
            entries = [{"Id": str(n), "MessageBody": json.dumps(one)} for n, one in enumerate(made)]
            now = time.time() * 1000
            answer = self._sqs.send_message_batch(QueueUrl=self._url, Entries=entries)
            assert len(answer["Successful"]) == len(entries), answer
            self.handed_in |= {key(one): now for one in made}
            due += part
            time.sleep(max(0.0, due - time.monotonic()))

    def end(self) -> None:
        self._ended.set()
        self.join()


def p99(latencies: list[float]) -> float:
    """The 99th percentile: the smallest value that 99 % don't exceed."""
    return sorted(latencies)[-(-len(latencies) * 99 // 100) - 1]


def most_in_window(times_ms: list[float]) -> int:
    """The most of these that lie within any window."""
    most, first = 0, 0
    for last, at_ms in enumerate(times_ms):
        while times_ms[first] <= at_ms - WINDOW_SECONDS * 1000:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A fresh stack, with one tenant that nobody has set up yet."""
    end_cleanly_on_signals()
    with running(Knobs.read(KNOBS), OUT / "redrive", [LIVE]) as fresh:
        yield fresh


@pytest.fixture(scope="module")
def desk(stack: Stack) -> Desk:
    return Desk(stack)


def envelope(send_id: str) -> str:
    """What `send` dead-letters after too many attempts. Older than this Redis it would be uncertain, not new."""
    now = int(time.time() * 1000)
    made = request(send_id, OLD)
    mail = {name: made[name] for name in ("from", "to", "content")}
    return json.dumps(
        {
            "v": 1,
            "send_id": send_id,
            "tenant": OLD,
            "lane": "bulk",
            "slot_ms": now - 1_000,
            "cells": [],
            "attempts": 10,
            "first_seen_ms": now - 1_000,
            "fingerprint": f"print-{send_id}",
            "mail": mail,
        }
    )


def dead_letter(stack: Stack, desk: Desk, send_id: Callable[[], str]) -> set[Key]:
    """Half are requests that `reserve` refuses, since nobody knows their tenant; half are what `send` gave up."""
    refused = [request(send_id(), OLD) for _ in range(LETTERS // 2)]
    desk.hand_in("bulk", refused)
    given_up = [send_id() for _ in range(LETTERS - len(refused))]
    sqs: Any = stack.client("sqs")
    reason = {"SendslotReason": {"DataType": "String", "StringValue": "attempts_exhausted"}}
    for start in range(0, len(given_up), 10):
        entries = [
            {"Id": str(n), "MessageBody": envelope(one), "MessageAttributes": reason}
            for n, one in enumerate(given_up[start : start + 10])
        ]
        answer = sqs.send_message_batch(QueueUrl=stack.outputs["BulkSendDlqUrl"], Entries=entries)
        assert len(answer["Successful"]) == len(entries), answer
    wait_until(
        lambda: dead(stack) == LETTERS and desk.queues.empty(),
        lambda: f"{dead(stack)} of {LETTERS} are dead letters",
    )
    return {key(one) for one in refused} | {(OLD, one) for one in given_up}


def dead(stack: Stack) -> int:
    """How many bulk dead letters there are, hidden ones too."""
    sqs: Any = stack.client("sqs")
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    count = 0
    for output in ("BulkIntakeDlqUrl", "BulkSendDlqUrl"):
        told = sqs.get_queue_attributes(QueueUrl=stack.outputs[output], AttributeNames=names)["Attributes"]
        count += sum(int(told[name]) for name in names)
    return count


def set_up(stack: Stack) -> None:
    """The tenant is made."""
    ssm: Any = stack.client("ssm")
    ssm.put_parameter(
        Name=f"{stack.outputs['TenantsPath']}/{OLD}",
        Value=json.dumps({"version": 1, "configuration_set": OLD}),
        Type="String",
    )
    stack.ses().create_configuration_set(ConfigurationSetName=OLD)
    stack.refresh()


def redrive(stack: Stack) -> subprocess.Popen[bytes]:
    words = ["redrive", "--rate", f"{REDRIVEN_PER_SECOND}/s", "--lane", "bulk", "--stack", stack.stack_name, "--json"]
    environment = os.environ | {
        "AWS_ENDPOINT_URL": stack.endpoint_url,
        "AWS_REGION": stack.region,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
    }
    return subprocess.Popen([CLI, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_dead_letters_go_again_and_live_mail_does_not_notice(
    stack: Stack, desk: Desk, send_id: Callable[[], str]
) -> None:
    letters = dead_letter(stack, desk, send_id)
    set_up(stack)
    live = Live(stack, send_id)
    live.start()
    time.sleep(BEFORE_SECONDS)
    began_ms = time.time() * 1000

    first = redrive(stack)
    arrived = lambda: len({a.key for a in desk.arrivals(letters)})  # noqa: E731
    wait_until(lambda: arrived() >= LETTERS / 3, lambda: f"{arrived()} of {LETTERS} arrived", 60 + LETTERS / 10)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    control = stack.outputs["ControlFunctionName"]
    killed = function_processes(stack.pids["emulator"], control)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    at_kill = arrived()

    second = redrive(stack)
    out, err = second.communicate(timeout=180 + LETTERS)
    report = json.loads(out.splitlines()[-1])
    assert second.returncode == 0, (report, err.decode())
    wait_until(lambda: arrived() == LETTERS, lambda: f"{arrived()} of {LETTERS} arrived")
    ended_ms = time.time() * 1000
    live.end()
    live_arrivals = desk.settled(live.handed_in)
    arrivals = desk.settled(letters)

    assert dead(stack) == 0
    assert set(times_sent(arrivals).values()) == {1}, "a letter was sent twice"
    assert set(times_sent(live_arrivals).values()) == {1}, "a live mail was sent twice"
    throttled = [a for a in (*arrivals, *live_arrivals) if not a.accepted]
    assert not throttled, f"{len(throttled)} were throttled"
    most = most_in_window([a.at_ms for a in arrivals])

    handed_in = live.handed_in
    # The first five seconds start cold. Beside: where letters went in that very second, not while a killed call's are
    # hidden.
    first_ms = began_ms - (BEFORE_SECONDS - 5) * 1000
    before = [a.at_ms - handed_in[a.key] for a in live_arrivals if first_ms <= a.at_ms < began_ms]
    letters_in = Counter(int(a.at_ms // 1000) for a in arrivals)
    beside = [a.at_ms - handed_in[a.key] for a in live_arrivals if letters_in[int(a.at_ms // 1000)] >= 5]
    ratio = p99(beside) / p99(before)
    seconds = (ended_ms - began_ms) / 1000
    # Of the ratio nothing is asserted: other tests may run beside this one.
    print(
        f"\n{LETTERS} letters in {seconds:.0f} s, killed after {at_kill} (control: {len(killed)}); most in"
        f" {WINDOW_SECONDS} s: {most}; live mail {len(before)} before, {len(beside)} beside;"
        f" p99 {p99(before):.0f} ms before, {p99(beside):.0f} ms beside, ratio {ratio:.3f};"
        f" throttled 0, duplicates 0"
    )
    assert most <= REDRIVEN_PER_SECOND * WINDOW_SECONDS + ALLOWANCE
