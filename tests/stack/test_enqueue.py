"""`sendslot enqueue` killed twice: nothing is lost, hardly anything comes twice, and memory doesn't grow.

On the emulator's SQS alone, as nothing may take from the queue what is counted there. ENQUEUE_ROWS=100000 is what the
README tells of; the default is for every day.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.local.paths import ROOT
from tests.local.processes import Processes
from tests.local.servers import start_emulator
from tests.local.tools import REGION, aws_environment, target_folder

ROWS = int(os.environ.get("ENQUEUE_ROWS", "10000"))
IN_FLIGHT = 16
MOST_MEMORY = 100_000_000
STACK = "enqueue-test"
TEMPLATE = {
    "Resources": {"Bulk": {"Type": "AWS::SQS::Queue"}, "Priority": {"Type": "AWS::SQS::Queue"}},
    "Outputs": {
        "BulkIntakeQueueUrl": {"Value": {"Ref": "Bulk"}},
        "PriorityIntakeQueueUrl": {"Value": {"Ref": "Priority"}},
    },
}
# Before one row of so many stands one that is refused.
REFUSED_EVERY = 997


class Intake:
    """An emulator of its own with a stack that has intake queues, and nobody behind them."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self._state = folder / "state"
        keep = {"PERSIST_STATE": "1", "STATE_DIR": str(self._state)}
        nobody = "127.0.0.1:1"
        self.endpoint = start_emulator(processes, "127.0.0.1", f"redis://{nobody}", f"http://{nobody}", folder, **keep)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION}
        formation: Any = boto3.client("cloudformation", endpoint_url=self.endpoint, **keys)
        formation.create_stack(StackName=STACK, TemplateBody=json.dumps(TEMPLATE))
        formation.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})

    def taken(self) -> collections.Counter[str]:
        """How often each send id is on a queue, as the emulator leaves it when it ends.

        Receiving 100,000 messages from it takes an hour, as it looks at each of them for every call.
        """
        os.kill(self._processes.pids()["emulator"], signal.SIGTERM)
        saved = self._state / "sqs.json"
        deadline = time.monotonic() + 60
        while not saved.exists():
            assert time.monotonic() < deadline, "the emulator has left no state"
            time.sleep(0.1)
        return collections.Counter(json.loads(body)["send_id"] for body in bodies(json.loads(saved.read_text())))


def bodies(state: Any) -> Iterator[str]:
    """The bodies of all messages, wherever the state has them."""
    if isinstance(state, dict):
        if "body" in state and "receipt_handle" in state:
            yield state["body"]
            return
        state = list(state.values())
    if isinstance(state, list):
        for part in state:
            yield from bodies(part)


@pytest.fixture
def intake(tmp_path: Path) -> Iterator[Intake]:
    """Where mail is handed in."""
    with Processes(tmp_path / "logs") as processes:
        yield Intake(processes, tmp_path)


class Run:
    """One run of the program."""

    def __init__(self, endpoint: str, file: Path) -> None:
        command = [target_folder() / "sendslot", "--stack", STACK, "--endpoint-url", endpoint, "--json"]
        command += ["enqueue", file, "--tenant", "tenant-1", "--from", "shop@example.com", "--template", "hello"]
        command += ["--in-flight", str(IN_FLIGHT)]
        self._log = file.with_suffix(".log").open("a")
        self.process = subprocess.Popen(
            list(map(str, command)),
            env=aws_environment(),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.memory = 0

    def until(self, reached: Callable[[], bool]) -> bool:
        """Wait for that; whether it came before the program's end. Looks at its memory meanwhile."""
        while self.process.poll() is None:
            # Its status has no memory once it has ended.
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{self.process.pid}/status").read_text()
                if found := re.search(r"VmHWM:\s*(\d+) kB", status):
                    self.memory = max(self.memory, int(found[1]) * 1024)
            if reached():
                return True
            time.sleep(0.002)
        return False

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._log.close()

    def report(self) -> dict[str, Any]:
        """The last line that it printed."""
        output, _ = self.process.communicate()
        self._log.close()
        report: dict[str, Any] = json.loads(output.splitlines()[-1])
        return report


def write(file: Path) -> list[int]:
    """ROWS that can be sent, and some between them that can't: the lines of those."""
    bad = []
    with file.open("w") as to:
        to.write("send_id,to,name,city\n")
        for n in range(ROWS):
            if n % REFUSED_EVERY == 500:
                bad.append(n + len(bad) + 2)
                to.write(f"bad-{n},nobody,Name,Bonn\n")
            to.write(f'row-{n:07},someone-{n}@example.org,"Name, {n}",Bonn\n')
    return bad


def settled(checkpoint: Path) -> int:
    """Rows of whole batches that are noted."""
    if not checkpoint.exists():
        return 0
    batches = re.findall(r"^b (\d+) (\d+) .*\n", checkpoint.read_text(), re.MULTILINE)
    return sum(int(end) - int(first) for first, end in batches)


def test_killed_twice_and_resumed(intake: Intake, tmp_path: Path) -> None:
    file = tmp_path / "campaign.csv"
    checkpoint = tmp_path / "campaign.csv.checkpoint"
    refused = write(file)
    seed = int(os.environ.get("ENQUEUE_SEED", str(time.time_ns() % 1_000_000)))
    draw = random.Random(seed)
    killed_at, memory = [], []
    for low, high in ((0.05, 0.45), (0.5, 0.9)):
        run = Run(intake.endpoint, file)
        size = draw.uniform(low, high)
        # The checkpoint's size says how far it is; reading all of it would take longer than the batches.
        most = ROWS / 10 * 24 * size  # a batch is a line of 24 bytes or more
        assert run.until(lambda most=most: checkpoint.exists() and checkpoint.stat().st_size > most), f"seed {seed}"
        time.sleep(draw.uniform(0, 0.02))
        run.kill()
        killed_at.append(settled(checkpoint))
        memory.append(run.memory)
    assert 0 < killed_at[0] < killed_at[1] < ROWS, f"{killed_at}, seed {seed}"

    last = Run(intake.endpoint, file)
    last.until(lambda: False)
    report = last.report()
    memory.append(last.memory)
    assert last.process.returncode == 4
    assert report["done"]
    assert report["resumed"] == killed_at[1]
    assert (report["accepted"], report["refused"]) == (ROWS, len(refused))
    listed = (tmp_path / "campaign.csv.refused").read_text().splitlines()[1:]
    assert [int(line.split(",")[0]) for line in listed] == refused

    # All was handed in: there is nothing to do.
    once_more = Run(intake.endpoint, file)
    once_more.until(lambda: False)
    assert once_more.report()["resumed"] == ROWS + len(refused)

    ids = intake.taken()
    assert set(ids) == {f"row-{n:07}" for n in range(ROWS)}, f"seed {seed}"
    again = sum(ids.values()) - ROWS
    print(
        f"{len(ids):,} of {ROWS:,} rows accepted, killed after {killed_at}, {again} handed in twice, "
        f"{report['rows_per_second']:,.0f} rows/s, memory {max(memory) / 1e6:.1f} MB, seed {seed}"
    )
    assert again <= 2 * IN_FLIGHT * 10, f"seed {seed}"
    assert max(memory) < MOST_MEMORY


def test_a_signal_ends_it_cleanly(intake: Intake, tmp_path: Path) -> None:
    file = tmp_path / "campaign.csv"
    checkpoint = tmp_path / "campaign.csv.checkpoint"
    write(file)
    run = Run(intake.endpoint, file)
    assert run.until(lambda: checkpoint.exists() and checkpoint.stat().st_size > 2000)
    run.process.send_signal(signal.SIGTERM)
    report = run.report()
    assert run.process.returncode == 130
    assert 0 < report["rows"] < ROWS
    assert not report["done"]
    # What was on its way was waited for: nothing is on the queue that isn't noted.
    ids = intake.taken()
    assert sum(ids.values()) == len(ids) == report["accepted"]
    assert settled(checkpoint) == report["rows"]
