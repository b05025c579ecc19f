"""`make demo`: a burst through the real stack, judged by what reached the provider."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .chart import svg
from .errors import LocalError
from .knobs import Knobs
from .mails import URGENT_PER_SECOND, Plan
from .page import html, shown
from .paths import LUA, OUT
from .paths import shown as shown_path
from .producer import Producer
from .queues import LIVE, Queues
from .record import Record
from .redis_calls import RedisCalls
from .report import Key, failures, report, rest_in_time
from .say import console, step
from .servers import failed_start
from .stack import Stack, running

# Nothing new for this long, and longer than any wait of the schedule, means that nothing will come. A batch whose
# function failed, as when Redis didn't answer in time, comes back after its queue's visibility timeout of 180 s.
STALL_SECONDS = 200.0
# Longer than a send takes.
SILENCE_SECONDS = 3.0

WRITTEN = ("report.json", "sends.svg", "index.html")


def demo(knobs: Knobs) -> int:
    """Run it; the exit code."""
    plan = Plan.of(knobs)
    knobs.check_duration(plan.recipients)
    out = OUT / "demo"
    for name in WRITTEN:
        (out / name).unlink(missing_ok=True)
    with running(knobs, out, plan.tenants) as stack:
        if not stack.record:
            return _without_record(knobs, stack, plan)
        redis_calls = RedisCalls(stack.redis(), LUA)
        record = Record(Path(stack.record))
        producer = Producer(stack, plan)
        send(knobs, stack, plan, producer, record, out / "logs")
        result = report(
            mails=len(plan),
            handed_in=producer.handed_in,
            arrivals=record.arrivals,
            limit_per_second=knobs.rate.per_second,
            budget_per_second=knobs.budget_per_second,
            redis_calls=redis_calls.count(),
            big=plan.big,
        )
        dead = Queues(stack).dead_letters()
    _write(out, result, svg(result, record.arrivals))
    _print(result, dead)
    reasons = failures(result)
    if reasons:
        console.print(f"[red]not a success:[/] {'; '.join(reasons)}. Logs are in {shown_path(out / 'logs')}/")
    return 1 if reasons else 0


def send(knobs: Knobs, stack: Stack, plan: Plan, producer: Producer, record: Record, logs: Path) -> None:
    """Hand the plan in and follow the record until all arrived, or nothing more will. `logs`: of the servers."""
    queues = Queues(stack)
    with _bar() as bar:
        handed = bar.add_task("handed in", total=len(plan), rate="")
        arrived = bar.add_task("arrived", total=len(plan), rate="")
        producer.hand_in_burst(lambda count: bar.advance(handed, count))
        reached: set[Key] = set()
        quiet_since = time.monotonic()
        patience = _patience_seconds(knobs)
        bound = quiet_since + _longest_seconds(knobs, plan)
        while True:
            now = time.monotonic()
            if new := record.follow():
                quiet_since = now
                reached.update(arrival.key for arrival in new if arrival.accepted)
            bar.update(handed, completed=len(producer.handed_in))
            bar.update(arrived, completed=len(reached), rate=_rate(record))
            quiet = now - quiet_since
            if producer.finished():
                # A duplicate could still be under way until the queues are empty; with empty queues
                # and silence, what is missing won't come.
                settled = producer.handed_in.keys() <= reached or quiet > SILENCE_SECONDS
                if (settled and queues.empty()) or quiet > patience:
                    break
            if now > bound or not stack.alive():
                producer.stop()
                break
            if not reached:
                _check_functions(stack, producer, logs)
            time.sleep(0.25)
        record.follow()


def _patience_seconds(knobs: Knobs) -> float:
    """After so long without an arrival nothing will come: a slow limit spaces arrivals out."""
    return STALL_SECONDS + knobs.horizon_seconds + 5 / knobs.budget_per_second


def _longest_seconds(knobs: Knobs, plan: Plan) -> float:
    """No run may take longer. Urgent mail is handed in over time, and so is the trickle, but within the drain."""
    urgent = len(plan.urgent) / URGENT_PER_SECOND
    return urgent + 3 * plan.recipients / knobs.budget_per_second + _patience_seconds(knobs)


def _check_functions(stack: Stack, producer: Producer, logs: Path) -> None:
    """End the run if a function can't start, such as for its settings: nothing would ever arrive."""
    log = logs / "emulator.log"
    if "emulator" in stack.pids and (failed := failed_start(log.read_text(errors="replace"))):
        producer.stop()
        raise LocalError(f"{failed}\nLogs are in {shown_path(logs)}/")


def _rate(record: Record) -> str:
    """What arrived in the latest second."""
    if not record.arrivals:
        return ""
    latest = record.arrivals[-1].at_ms - 1000
    count = 0
    for arrival in reversed(record.arrivals):
        if arrival.at_ms <= latest:
            break
        count += arrival.recipients
    return f"{count}/s"


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description:>10}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=console,
    )


def _write(out: Path, result: dict[str, Any], picture: str) -> None:
    for name, text in zip(WRITTEN, (json.dumps(result, indent=2) + "\n", picture, html(result, picture)), strict=True):
        (out / name).write_text(text)


def _print(result: dict[str, Any], dead: Counter[str]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in result.items():
        table.add_row(name, f"[bold]{shown(value)}[/]")
    console.print(table)
    if verdict := rest_in_time(result):
        in_time, line = verdict
        console.print(f"[{'green' if in_time else 'red'}]{line}[/]")
    for reason, count in sorted(dead.items()):
        console.print(f"[red]dead-lettered:[/] {count:,} with reason {reason}")
    names = ", ".join(shown_path(OUT / "demo" / name) for name in WRITTEN)
    console.print(f"wrote {names}")


def _without_record(knobs: Knobs, stack: Stack, plan: Plan) -> int:
    """Send to an endpoint that is not ours: nobody to judge by, so only the queues are watched."""
    producer = Producer(stack, plan)
    queues = Queues(stack)
    with step("handing in"):
        producer.hand_in_burst(lambda _: None)
    begun = time.monotonic()
    bound = begun + _longest_seconds(knobs, plan)
    with step("waiting for the queues to empty"):
        while not (producer.finished() and queues.empty()):
            if not stack.alive():
                raise LocalError("the stack stopped by itself")
            if time.monotonic() < begun + STALL_SECONDS:
                _check_functions(stack, producer, OUT / "demo" / "logs")
            if time.monotonic() > bound:
                producer.stop()
                left = ", ".join(f"{queues.depth(output):,} in {output.removesuffix('Url')}" for output in LIVE)
                raise LocalError(f"the queues are not empty after {_longest_seconds(knobs, plan):,.0f} s: {left}")
            time.sleep(1)
    dead = queues.dead_letters()
    console.print(f"{len(producer.handed_in):,} handed in; {sum(dead.values()):,} dead-lettered {dict(dead) or ''}")
    console.print("no report: SES_ENDPOINT is not our simulator, so there is no record of what arrived")
    return 1 if dead else 0
