"""From what was counted to dollars: the arithmetic of `docs/costs.md`. Pure, but that it reads the template.

A month is a twelfth of a year; prices are those of `docs/prices.json`, without free tiers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from .counting import EVENTBRIDGE, FUNCTION, OTHER, POLLER, SQS_BATCH, Invocations, Requests

MILLION = 1_000_000
GB = 1_000_000_000
#: What Lambda does at an empty queue by default: so many pollers, each with a long poll that lasts so long.
IDLE_POLLERS, LONG_POLL_SECONDS = 5, 20
#: Mail's actions on SQS and S3. Whatever else functions ask for, they ask for by the clock.
MAIL_ACTIONS = (
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "ChangeMessageVisibility",
    "PutObject",
    "GetObject",
    "DeleteObject",
)
#: (service, action, who asked, `intake`, `send`, `feedback` or another queue, how many)
Request = tuple[str, str, str, str, Requests]
Prices = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """What was counted while some mails went."""

    mails: int
    ses_requests: int
    ses_recipients: int
    requests: list[Request]
    invocations: dict[str, Invocations]
    redis_calls: int

    def sqs(self, by: str, queue: str | None = None) -> float:
        """Requests to SQS a mail, as billed."""
        return self._sum(lambda requests: requests.billed, by, queue)

    def grouped(self) -> float:
        """Those of them that fair queues cost more for."""
        return sum(request[4].grouped for request in self.requests if _is_mail(request)) / self.mails

    def endpoint_bytes(self) -> float:
        """What functions send to SQS, and once more for SES, which gets the same mail."""
        return 2 * self._sum(lambda requests: requests.size, FUNCTION, None)

    def s3(self) -> float:
        """Requests to S3 a mail."""
        return sum(r[4].count for r in self.requests if r[0] == "s3" and _is_mail(r)) / self.mails

    def sqs_requests(self) -> float:
        """All requests to SQS a mail."""
        return sum(self.sqs(by) for by in (OTHER, FUNCTION, POLLER, EVENTBRIDGE))

    def lambda_requests(self) -> float:
        """Invocations a mail."""
        return sum(runs.count for runs in self.invocations.values()) / self.mails

    def gb_seconds(self, function: str | None = None) -> float:
        """Of one function or of all, a mail."""
        return sum(r.gb_seconds for name, r in self.invocations.items() if function in (None, name)) / self.mails

    def log_bytes(self) -> float:
        """Of logs, a mail."""
        return sum(runs.log_bytes for runs in self.invocations.values()) / self.mails

    def batch(self, function: str) -> tuple[float, float]:
        """(mails, billed ms) of one invocation; of feedback it is events that come in batches, and mails here still."""
        runs = self.invocations[function]
        return self.mails / runs.count, runs.billed_ms / runs.count

    def _sum(self, what: Callable[[Requests], int], by: str, queue: str | None) -> float:
        found = (r for r in self.requests if r[0] == "sqs" and r[2] == by and queue in (None, r[3]) and _is_mail(r))
        return sum(what(request[4]) for request in found) / self.mails


def _is_mail(request: Request) -> bool:
    return request[0] in ("sqs", "s3") and request[1].startswith(MAIL_ACTIONS)


@dataclasses.dataclass(frozen=True)
class Clock:
    """What was counted a minute while no mail went."""

    lambda_requests: float
    lambda_gb_seconds: float
    log_bytes: float
    redis_calls: float
    #: By service and action, those of functions.
    requests: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Figures:
    """All that a run counted."""

    mails: int
    rate_per_second: float
    clock: Clock
    plain: Stretch
    events: Stretch
    custom_metrics: int
    #: Of Redis's memory: the mark that a mail was sent, the trace of its way, and that an event of SES was taken in.
    mark_bytes: int
    trace_bytes: int
    event_bytes: int

    def short_bytes(self) -> float:
        """What a mail leaves in Redis beside its mark, for about a day."""
        return self.trace_bytes + self.events.sqs(EVENTBRIDGE) * self.event_bytes

    def to_json(self) -> dict[str, Any]:
        """For `docs/costs.json`. The first of it is what `sendslot plan` reads: a mail, with SES's events."""
        return {
            "sqs_requests": round(self.events.sqs_requests(), 4),
            "lambda_requests": round(self.events.lambda_requests(), 4),
            "lambda_gb_seconds": round(self.events.gb_seconds(), 5),
            "log_bytes": round(self.events.log_bytes(), 1),
            "redis_calls": round(self.events.redis_calls / self.events.mails, 4),
            "redis_bytes": round(self.mark_bytes + self.short_bytes()),
            **dataclasses.asdict(self),
        }

    @classmethod
    def of_json(cls, read: Mapping[str, Any]) -> Figures:
        """The other way."""
        own = {field.name: read[field.name] for field in dataclasses.fields(cls)}
        own["clock"] = Clock(**read["clock"])
        for name in ("plain", "events"):
            stretch = dict(read[name])
            stretch["requests"] = [(s, a, by, queue, Requests(**rest)) for s, a, by, queue, rest in stretch["requests"]]
            stretch["invocations"] = {name: Invocations(**runs) for name, runs in stretch["invocations"].items()}
            own[name] = Stretch(**stretch)
        return cls(**own)


@dataclasses.dataclass(frozen=True)
class Part:
    """One row of a bill: so much of something, at its price."""

    name: str
    amount: float
    price: float
    unit: str

    @property
    def dollars(self) -> float:
        """What it comes to."""
        return self.amount * self.price


def parts(stretch: Stretch, prices: Prices) -> list[Part]:
    """What one mail takes, but for SES itself."""
    sqs, run, second = prices["sqs_request"], prices["lambda_request"], prices["lambda_gb_second"]
    rows = [
        Part("SQS: the producer's requests, ten mails each", stretch.sqs(OTHER), sqs, "requests"),
        Part("SQS: what reserve and send put on queues", stretch.sqs(FUNCTION), sqs, "requests"),
        Part(
            "SQS: Lambda's pollers, receive and delete, intake queues", stretch.sqs(POLLER, "intake"), sqs, "requests"
        ),
        Part("SQS: the same, send queues", stretch.sqs(POLLER, "send"), sqs, "requests"),
        Part(
            "SQS: fair queues, more for a MessageGroupId",
            stretch.grouped(),
            prices["sqs_fair_request_surcharge"],
            "requests",
        ),
        Part("Lambda: invocations", stretch.lambda_requests(), run, "requests"),
        *(
            Part(f"Lambda: time of {name}", stretch.gb_seconds(name), second, "GB-seconds")
            for name in sorted(stretch.invocations)
        ),
        Part("SQS: SES's events, put on the feedback queue one by one", stretch.sqs(EVENTBRIDGE), sqs, "requests"),
        Part("SQS: Lambda's pollers, feedback queue", stretch.sqs(POLLER, "feedback"), sqs, "requests"),
        Part("S3: objects of parked mail", stretch.s3(), prices["s3_put"], "requests"),
        Part("CloudWatch: logs, metrics among them", stretch.log_bytes() / GB, prices["cloudwatch_logs_gb"], "GB"),
        Part("Endpoints: bytes of these small mails", stretch.endpoint_bytes() / GB, prices["endpoint_gb"], "GB"),
    ]
    return [row for row in rows if row.amount]


def of_mail(stretch: Stretch, prices: Prices) -> float:
    """Dollars a mail, but for SES itself."""
    return sum(part.dollars for part in parts(stretch, prices))


def batches(figures: Figures, prices: Prices, size: int) -> tuple[float, float, float]:
    """Dollars a million mails by arithmetic, if each batch held `size` mails: (SQS, Lambda's time, invocations).

    Of `size` mails at any time of their second the last is due after `size` / (`size` + 1) of it, on average, and send
    waits for it. That is all of its time that is counted here; of reserve it is what was measured, the processes warm.
    """
    sqs = 1 / SQS_BATCH + 5 / size  # producer; receive, delete, put on the send queue; receive, delete
    memory = figures.plain.invocations["send"].memory_mb / 1024
    waiting = size / (size + 1) / size * memory
    reserving = figures.events.batch("reserve")[1] / 1000 / size * memory
    return (
        MILLION * sqs * prices["sqs_request"],
        MILLION * (waiting + reserving) * prices["lambda_gb_second"],
        MILLION * 2 / size * prices["lambda_request"],
    )


def waiting_seconds(rate_per_second: float, size: float) -> float:
    """How long send waits for the last of a batch of slots that follow each other, on average.

    A queue's delay is whole seconds, so they surface up to one early, any part of it as likely.
    """
    return 0.5 + (size - 1) / rate_per_second / 2


def gathered(figures: Figures, prices: Prices) -> tuple[float, float]:
    """(as counted, as it were with ten events an invocation): dollars a million mails of all that events cost."""
    events = figures.events.sqs(EVENTBRIDGE)
    runs = figures.events.invocations["feedback"]
    each = (
        runs.gb_seconds * prices["lambda_gb_second"] + runs.log_bytes / GB * prices["cloudwatch_logs_gb"]
    ) / runs.count + prices["lambda_request"]

    def dollars(invocations: float, polls: float) -> float:
        return MILLION * ((events + polls) * prices["sqs_request"] + invocations * each)

    return (
        dollars(runs.count / figures.events.mails, figures.events.sqs(POLLER, "feedback")),
        dollars(events / SQS_BATCH, 2 * events / SQS_BATCH),
    )


@dataclasses.dataclass(frozen=True)
class Made:
    """What the template makes, at its defaults."""

    alarm_metrics: int
    endpoints: int
    zones: int
    dashboards: int
    schedules: int
    polled_queues: int
    cache_nodes: int

    @classmethod
    def by_template(cls) -> Made:
        """Read it."""
        from tests.template.cloudformation import Stack

        stack = Stack()

        def properties(kind: str) -> list[Any]:
            return [resource["Properties"] for resource in stack.all(kind).values()]

        interfaces = [one for one in properties("AWS::EC2::VPCEndpoint") if one["VpcEndpointType"] == "Interface"]
        functions = properties("AWS::Serverless::Function")
        [cache] = properties("AWS::ElastiCache::ReplicationGroup")
        return cls(
            alarm_metrics=sum(
                sum("MetricStat" in metric for metric in alarm["Metrics"]) if "Metrics" in alarm else 1
                for alarm in properties("AWS::CloudWatch::Alarm")
            ),
            endpoints=len(interfaces),
            zones=max(len(one["SubnetIds"]) for one in interfaces),
            dashboards=len(properties("AWS::CloudWatch::Dashboard")),
            schedules=len(properties("AWS::Scheduler::Schedule")),
            polled_queues=sum(
                source["Type"] == "SQS" for function in functions for source in function.get("Events", {}).values()
            ),
            cache_nodes=int(cache["NumCacheClusters"]),
        )


def fixed(figures: Figures, made: Made, prices: Prices) -> list[Part]:
    """What a month costs before a mail is sent, but for the cache."""
    hours = prices["hours_month"]
    minutes = hours * 60
    clock = figures.clock
    polls = made.polled_queues * IDLE_POLLERS * minutes * 60 / LONG_POLL_SECONDS
    asked = sum(count * _price(kind, prices) for kind, count in clock.requests.items())
    return [
        Part(
            f"interface endpoints, {made.endpoints} in {made.zones} zones each",
            made.endpoints * made.zones * hours,
            prices["endpoint_hour"],
            "hours",
        ),
        Part("alarms", made.alarm_metrics, prices["cloudwatch_alarm_month"], "metrics"),
        Part(
            "custom metrics, in months with mail in both lanes",
            figures.custom_metrics,
            prices["cloudwatch_metric_month"],
            "metrics",
        ),
        Part("dashboard", made.dashboards, prices["cloudwatch_dashboard_month"], "of them"),
        Part("Lambda's pollers at empty queues", polls, prices["sqs_request"], "requests"),
        Part("schedules, one run a minute each", made.schedules * minutes, prices["scheduler_invocation"], "runs"),
        Part(
            "quota-refresh and control each minute: invocations",
            clock.lambda_requests * minutes,
            prices["lambda_request"],
            "requests",
        ),
        Part("the same: time", clock.lambda_gb_seconds * minutes, prices["lambda_gb_second"], "GB-seconds"),
        Part("the same: logs", clock.log_bytes * minutes / GB, prices["cloudwatch_logs_gb"], "GB"),
        Part("the same: requests to S3, CloudWatch and SQS", minutes, asked, "minutes"),
    ]


def _price(kind: str, prices: Prices) -> float:
    """Of a request that a function makes by the clock. Those to SES, SSM, Lambda and STS are free."""
    service, action = kind.split()
    if service == "s3":
        return float(prices["s3_put" if action.startswith(("List", "Put")) else "s3_get"])
    name = {"sqs": "sqs_request", "monitoring": "cloudwatch_request"}.get(service)
    return float(prices[name]) if name else 0.0


@dataclasses.dataclass(frozen=True)
class Account:
    """How much somebody sends."""

    name: str
    per_second: int
    per_day: int


ACCOUNTS = (Account("small", 14, 50_000), Account("medium", 100, 5_000_000), Account("large", 1_000, 50_000_000))
#: Cache nodes: the price's name, and memory in GiB, smallest first.
NODES = (
    ("t4g_micro", 0.5), ("t4g_small", 1.37), ("t4g_medium", 3.09), ("m7g_large", 6.38), ("r7g_large", 13.07),
    ("r7g_xlarge", 26.32), ("r7g_2xlarge", 52.82), ("r7g_4xlarge", 105.81), ("r7g_8xlarge", 209.55),
    ("r7g_12xlarge", 317.77),
)  # fmt: skip
#: ElastiCache keeps a quarter back, and the alarm on memory fires at three quarters of the rest.
USABLE = 0.75 * 0.75
#: Days that a mark lives beyond MaxMessageAgeSeconds; and that an event is remembered, a trace an hour less.
MORE_DAYS, SHORT_DAYS = 1, 26 / 24


def memory_bytes(figures: Figures, per_day: int, age_days: float) -> float:
    """What is remembered of so many mails a day takes."""
    return per_day * (figures.mark_bytes * (age_days + MORE_DAYS) + figures.short_bytes() * SHORT_DAYS)


def node(needed_bytes: float) -> str:
    """The smallest node that holds it, its alarm silent."""
    for name, gib in NODES:
        if needed_bytes <= gib * 2**30 * USABLE:
            return name
    raise ValueError(f"no node holds {needed_bytes:,.0f} bytes")


def cache(figures: Figures, made: Made, prices: Prices, per_day: int, age_days: float) -> tuple[str, Part]:
    """(node type, its row)."""
    name = node(memory_bytes(figures, per_day, age_days))
    hours = made.cache_nodes * prices["hours_month"]
    return f"cache.{name.replace('_', '.', 1)}", Part("cache", hours, prices[f"cache_{name}_hour"], "hours")


#: The seed's own assumptions for ten million mails, and its figure.
SEED_MAILS, SEED_SECONDS, SEED_MB, SEED_FREE_SQS = 10 * MILLION, 1.0, 512, MILLION


def seed(prices: Prices) -> tuple[float, float, float]:
    """(SQS, Lambda's invocations, Lambda's time) in dollars, for its ten million mails."""
    runs = SEED_MAILS / 10
    return (
        (SEED_MAILS + 2 * runs - SEED_FREE_SQS) * prices["sqs_request"],
        runs * prices["lambda_request"],
        runs * SEED_SECONDS * SEED_MB / 1024 * prices["lambda_gb_second"],
    )
