"""The rows: what fails, when, and what is asked of it.

Each hands its burst in and breaks something while it is sent. What it returns says when that was.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.local.errors import LocalError

from . import judge
from .bed import Bed, Burst
from .breaking import crash_functions, now_ms
from .judge import Allowance, Check, Span

LIMIT = 100.0
LOWER_LIMIT = 60.0
TWICE = 0.2
MAILS = 400
#: Longer than a send may take.
HANG_MS = 12_000
#: `slow` is slower than any ordinary answer, and in time.
SLOW_MS = 3_000
#: Longer than the rest of a burst takes, unless its end is uncertain: two pauses of a held message.
LAST_SECONDS = 15.0
PAUSED_TENANT = "tenant-2"


@dataclass(frozen=True)
class Broken:
    """When it was, and whose pause it was."""

    fault: Span | None
    paused: tuple[str, Span] | None = None


Act = Callable[[Bed, Burst], Broken]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    fault: str
    act: Act
    mails: int = MAILS
    redis_down: str = "hold"
    uncertain: str = "park"
    #: SES's events are published meanwhile, and `feedback` takes them in.
    events: bool = False
    #: Rows with this name in common begin one behind the other, before the mail of those before has come to its end:
    #: that takes no work, only time.
    together: str = ""
    allowance: Allowance = judge.never
    checks: Sequence[Check] = field(default=())
    #: Checks of how fast it goes: the short form, a test, shows these figures without judging them.
    timed: Sequence[Check] = field(default=())
    #: What the fault cuts the provider's limit to.
    lower_limit: float | None = None
    #: Part of the short form.
    quick: bool = False


def killed(bed: Bed, burst: Burst, seconds: float = 2.0) -> Broken:
    """Valkey crashes mid-burst and comes back empty."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.4))
    start_ms = now_ms()
    with bed.redis.away():
        time.sleep(seconds)
    return Broken(Span(start_ms, now_ms()))


def flushed(bed: Bed, burst: Burst) -> Broken:
    """Valkey forgets everything mid-burst."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.4))
    start_ms = now_ms()
    bed.redis.flush()
    return Broken(Span(start_ms, now_ms()))


def twice(bed: Bed, burst: Burst, act: Act | None = None) -> Broken:
    """SQS delivers a fifth of the messages twice, on all queues, whatever else happens."""
    bed.delivery.twice(TWICE, bed.seed)
    try:
        if act:
            broken = act(bed, burst)
        else:
            burst.hand_in()
            broken = Broken(None)
        # What is handed out once more later waits long, as it may be somebody's: not without end.
        _reached(bed, burst, 0.7)
    finally:
        bed.delivery.twice(0, bed.seed)
    _seen_whole(bed, burst)
    return broken


def read_only(bed: Bed, burst: Burst) -> Broken:
    """Valkey refuses writes for five seconds."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.4))
    start_ms = now_ms()
    with bed.redis.read_only():
        time.sleep(5)
    return Broken(Span(start_ms, now_ms()))


def frozen(bed: Bed, burst: Burst) -> Broken:
    """Valkey keeps its connections and answers nothing for 20 s."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.4))
    start_ms = now_ms()
    with bed.redis.frozen():
        time.sleep(20)
    return Broken(Span(start_ms, now_ms()))


def crashed(bed: Bed, burst: Burst) -> Broken:
    """Half of the processes of `send` are killed, three times, while they wait for the provider's answers."""
    bed.provider.faults({"kind": "slow", "share": 1.0, "count": None, "ms": 700})
    burst.hand_in()
    start_ms = None
    for share in (0.1, 0.2, 0.3):
        burst.flowing(share)
        start_ms = start_ms or now_ms()
        if not crash_functions(bed.stack, bed.send_function, 0.5, bed.random):
            raise RuntimeError(f"no process of {bed.send_function} was found to kill")
    bed.provider.faults()
    return Broken(Span(start_ms or now_ms(), now_ms()))


def provider(bed: Bed, burst: Burst, kind: str, share: float, ms: int | None = None) -> Broken:
    """The provider misbehaves with a share of the requests until seven tenths of the burst have reached it."""
    bed.provider.faults({"kind": kind, "share": share, "count": None} | ({"ms": ms} if ms else {}))
    start_ms = now_ms()
    burst.hand_in()
    _reached(bed, burst, 0.7)
    bed.provider.faults()
    end_ms = now_ms()
    _seen_whole(bed, burst)
    return Broken(Span(start_ms, end_ms))


def hanging(bed: Bed, burst: Burst) -> Broken:
    """Some requests are never answered; half of these were accepted."""
    hang = {"share": 0.03, "count": None, "ms": HANG_MS}
    bed.provider.faults(hang | {"kind": "hang_before"}, hang | {"kind": "hang_after"})
    start_ms = now_ms()
    burst.hand_in()
    _reached(bed, burst, 0.7)
    bed.provider.faults()
    end_ms = now_ms()
    _seen_whole(bed, burst)
    return Broken(Span(start_ms, end_ms))


def _reached(bed: Bed, burst: Burst, share: float) -> None:
    """Wait until so many of the burst have reached the provider, whatever it made of them."""
    count = round(share * len(burst.keys))
    seen = lambda: len({arrival.key for arrival in bed.arrivals(burst.keys)})  # noqa: E731
    bed.wait(lambda: seen() >= count, lambda: f"{seen()} of {count} reached the provider", 90)


def _seen_whole(bed: Bed, burst: Burst) -> None:
    """Wait until the provider has seen all of it that it will see soon: the next row's fault is not for this one."""
    deadline = time.monotonic() + LAST_SECONDS
    while time.monotonic() < deadline and len({arrival.key for arrival in bed.arrivals(burst.keys)}) < len(burst.keys):
        time.sleep(0.1)


def limit_cut(bed: Bed, burst: Burst) -> Broken:
    """The provider allows 60 instead of 100 from some moment on, until all of it arrived; then 100 again."""
    burst.hand_in()
    burst.flowing(0.15)
    start_ms = now_ms()
    bed.provider.settings(rate=LOWER_LIMIT)
    try:
        ideal = len(burst.keys) / LOWER_LIMIT
        bed.wait(lambda: burst.arrived() == burst.keys, lambda: f"{len(burst.arrived())} arrived", 2 * ideal + 60)
    finally:
        bed.provider.settings(rate=LIMIT)
    end_ms = now_ms()
    return Broken(Span(start_ms, end_ms))


def tenant_paused(bed: Bed, burst: Burst, flush: bool = False) -> Broken:
    """A tenant's configuration set is switched off mid-burst, its mail parked; then the tenant is resumed."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.2))
    bed.provider.let_tenant_send(PAUSED_TENANT, False)
    start_ms = now_ms()
    try:
        if flush:
            burst.flowing(0.4)
            bed.redis.flush()
        others = {key for key in burst.keys if key[0] != PAUSED_TENANT}
        # Parked, or sent before: nothing of either tenant is under way.
        bed.wait(
            lambda: others <= burst.arrived() and burst.keys <= burst.arrived() | bed.parked().keys(),
            lambda: f"{len(burst.keys - burst.arrived() - bed.parked().keys())} neither arrived nor were parked",
            150,  # an emptied Redis waits up to a minute for its refresh, and what was held meanwhile for longer
            every=0.5,
        )
        burst.was_parked |= bed.parked().keys() & burst.keys
    except LocalError:
        bed.provider.let_tenant_send(PAUSED_TENANT, True)
        raise
    # What is being switched on may arrive from now on.
    end_ms = now_ms()
    bed.resume(PAUSED_TENANT, burst)
    span = Span(start_ms, end_ms)
    return Broken(span, (PAUSED_TENANT, span))


def account_paused(bed: Bed, burst: Burst) -> Broken:
    """The account may send nothing for five seconds."""
    burst.hand_in()
    burst.flowing(bed.random.uniform(0.1, 0.4))
    bed.provider.let_account_send(False)
    start_ms = now_ms()
    try:
        time.sleep(5)
    finally:
        bed.provider.let_account_send(True)
    return Broken(Span(start_ms, now_ms()))


_SENT_IN_THE_END = (judge.all_sent,)
_PAUSE = (judge.nothing_while_paused, judge.something_was_parked, judge.all_sent)
_EVENTS = (judge.events_came, judge.nothing_sent_stays_parked)


def _provider(kind: str, share: float, ms: int | None = None) -> Act:
    return functools.partial(provider, kind=kind, share=share, ms=ms)


def _twice(act: Act) -> Act:
    return functools.partial(twice, act=act)


def _unclear(name: str, act: Act, *, quick: bool = False) -> Row:
    return Row(f"provider {name}", act, together="unclear", quick=quick)


def _confirmed(name: str, act: Act) -> Row:
    return Row(f"provider {name}, events come", act, events=True, together="confirmed", checks=_EVENTS)


def _lost(name: str, act: Act, uncertain: str) -> Row:
    """Under `park` nothing goes twice; under `resend` what nobody can know any more does."""
    return Row(
        f"Valkey {name} and 20 % delivered twice, {uncertain}",
        _twice(act),
        uncertain=uncertain,
        together=f"lost, {uncertain}",
        allowance=judge.over_loss if uncertain == "resend" else judge.never,
        checks=_SENT_IN_THE_END if uncertain == "resend" else (),
    )


#: Rows with the same policies stand together: a change starts the functions anew.
ROWS: tuple[Row, ...] = (
    Row("Valkey killed and restarted", killed, quick=True),
    Row("Valkey flushed", flushed),
    Row(
        "Valkey flushed while a tenant is paused",
        functools.partial(tenant_paused, flush=True),
        checks=_PAUSE,
        quick=True,
    ),
    Row("Valkey read-only for 5 s", read_only),
    Row("Valkey frozen for 20 s", frozen),
    Row("Valkey away for 30 s", functools.partial(killed, seconds=30.0)),
    Row("send crashes mid-send", crashed),
    Row("a configuration set paused", tenant_paused, checks=_PAUSE),
    Row("the account paused for 5 s", account_paused, checks=_SENT_IN_THE_END),
    Row("provider slow", _provider("slow", 0.3, SLOW_MS), checks=_SENT_IN_THE_END),
    Row("provider throttles 30 %", _provider("throttle", 0.3), checks=_SENT_IN_THE_END),
    Row(
        "limit cut from 100 to 60 and restored",
        limit_cut,
        mails=3000,
        lower_limit=LOWER_LIMIT,
        checks=(judge.all_sent,),
        timed=(judge.few_throttles, judge.drains),
        quick=True,
    ),
    # Its second deliveries come to their end as late as the unclear ones of the others.
    Row("20 % delivered twice", twice, together="unclear", checks=_SENT_IN_THE_END, quick=True),
    _unclear("fails before accepting", _provider("error_before", 0.1)),
    _unclear("fails after accepting", _provider("error_after", 0.1), quick=True),
    _unclear("resets before accepting", _provider("reset_before", 0.1)),
    _unclear("resets after accepting", _provider("reset_after", 0.1)),
    _unclear("hangs before accepting", _provider("hang_before", 0.05, HANG_MS)),
    _unclear("hangs after accepting", _provider("hang_after", 0.05, HANG_MS)),
    _confirmed("fails after accepting", _provider("error_after", 0.1)),
    _confirmed("resets after accepting", _provider("reset_after", 0.1)),
    _confirmed("hangs", hanging),
    _lost("killed", killed, "park"),
    _lost("flushed", flushed, "park"),
    _lost("killed", killed, "resend"),
    _lost("flushed", flushed, "resend"),
    Row(
        "Valkey away for 8 s, capped",
        functools.partial(killed, seconds=8.0),
        redis_down="capped",
        allowance=judge.while_away,
        checks=(judge.capped_at(LIMIT),),
    ),
)
#: What the short form has less of.
QUICK_MAILS = {"limit cut from 100 to 60 and restored": 1500}
