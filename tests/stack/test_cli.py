"""The operator's command against a deployed stack: each command of its README, and that what it says is so."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.local.paths import ROOT
from tests.stack.desk import Desk, key, request, times_sent, wait_until

README = ROOT / "cli" / "README.md"
# Those that end with something else than 0 on a stack where `order-4711` was sent and nothing is dead or parked.
OTHER_ENDS = {"cancel": (1, "too_late")}


class Command:
    """Runs `sendslot` as somebody who works on this stack."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
        self.folder = folder
        self.env = {
            "PATH": f"{target}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "USER": "tester",
            "SENDSLOT_STACK": desk.stack.stack_name,
            "AWS_ENDPOINT_URL": desk.stack.endpoint_url,
            "AWS_REGION": desk.stack.region,
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
        }

    def line(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line as a shell does."""
        return subprocess.run(
            ["sh", "-c", line], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def told(self, *words: str, code: int = 0) -> Any:
        """Run a command with --json; what it says."""
        ran = self.line(shlex.join(["sendslot", "--json", *words]))
        assert ran.returncode == code, ran.stdout + ran.stderr
        return json.loads(ran.stdout)

    def state(self, mail: dict[str, Any]) -> str:
        """Where a mail is."""
        ran = self.line(shlex.join(["sendslot", "--json", "find", *key(mail)]))
        assert ran.returncode in (0, 3), ran.stdout + ran.stderr
        return json.loads(ran.stdout)["state"]


@pytest.fixture
def command(desk: Desk, tmp_path: Path) -> Command:
    return Command(desk, tmp_path)


def test_each_command_of_the_readme_runs(desk: Desk, command: Command) -> None:
    lines = re.findall(r"^sendslot .+", README.read_text(), re.MULTILINE)
    assert len(lines) > 10
    mail = request("order-4711")
    desk.hand_in("bulk", [mail])
    desk.settled([key(mail)])
    (command.folder / "mails.csv").write_text("to,subject,text\nann@example.com,Spring,It is here.\n")
    for line in lines:
        ran = command.line(line)
        word = next((word for word in OTHER_ENDS if f" {word} " in line), "")
        code, why = OTHER_ENDS.get(word, (0, ""))
        assert ran.returncode == code, f"{line}: {ran.stdout}{ran.stderr}"
        assert why in ran.stderr, f"{line}: {ran.stderr}"
        assert ran.stdout or " > " in line or code, line
    assert "redrive" in (command.folder / "sendslot.bash").read_text()
    wait_until(desk.queues.empty, lambda: "the README's own mail is still under way")


def test_a_paused_tenants_mail_is_seen_and_goes_when_it_is_resumed(
    desk: Desk, command: Command, send_id: Callable[[], str]
) -> None:
    mail = request(send_id(), tenant="tenant-2")
    paused = command.told("pause", "tenant-2", "--reason", "to see what happens")
    try:
        assert paused["tenants"] == ["tenant-2"]
        assert "cli:tester@" in paused["reason"]
        desk.hand_in("bulk", [mail])
        wait_until(lambda: command.state(mail) == "parked", lambda: f"it is {command.state(mail)}, not parked")
        status = command.told("status")
        assert not status["well"]
        assert any("tenant-2 is paused" in problem["what"] for problem in status["problems"])
        listed = {tenant["tenant"]: tenant for tenant in command.told("tenant", "list")["tenants"]}
        assert listed["tenant-2"]["paused"]
        assert not listed["tenant-1"]["paused"]
        assert desk.arrivals([key(mail)]) == []
    finally:
        command.told("resume", "tenant-2", "--rate", "20/s")
    assert times_sent(desk.settled([key(mail)])) == {key(mail): 1}
    wait_until(lambda: command.state(mail) == "sent", lambda: f"it is {command.state(mail)}, not sent")


def test_a_cancelled_mail_is_not_sent(desk: Desk, command: Command, send_id: Callable[[], str]) -> None:
    # 45 a second go: what comes behind these has its slot some seconds ahead.
    mails = [request(send_id()) for _ in range(500)]
    desk.hand_in("bulk", mails)
    booked = lambda: command.told("status")["booked"]["bulk"]  # noqa: E731
    wait_until(lambda: booked() > 250, lambda: f"{booked()} are booked")
    late = request(send_id())
    desk.invoke_reserve(late)
    assert command.told("find", *key(late))["state"] == "booked"
    assert command.told("cancel", *key(late))["was"] == "booked"
    looks = [json.loads(line) for line in command.line("sendslot watch --ticks 3 --json").stdout.splitlines()]
    assert len(looks) == 3
    assert looks[-1]["sends_per_second"] > 0
    desk.settled(map(key, mails))
    assert desk.arrivals([key(late)]) == []
    assert command.state(late) == "cancelled"
