"""The demo's knobs: environment variables, as `make demo RATE=14 MODEL=window` sets them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from .errors import LocalError

_RATE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)(?:/(s|m|min|h|d))?")
_WHOLE = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{1,7}(?:\.[0-9]{1,3})?")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MAX_PER_SECOND = 50_000
_DAY_SECONDS = 86_400
_MAX_SKEW = 1_000_000
# A p99 of fewer would say little.
_LEAST_MAILS = 10


@dataclass(frozen=True)
class Rate:
    """Recipients per time, kept as it was written so that the template gets the same text."""

    text: str
    exact: Fraction

    @property
    def per_second(self) -> float:
        """Recipients per second."""
        return float(self.exact)

    @classmethod
    def parse(cls, name: str, text: str) -> Rate:
        """`100`, `0.8/s`, `20/h`."""
        match = _RATE.fullmatch(text.strip())
        if not match:
            raise LocalError(f"{name}={text}: write a rate such as 100, 0.8/s or 20/h, with at most three decimals")
        unit = match[2] or "s"
        if "." in match[1] and unit != "s":
            raise LocalError(f"{name}={text}: decimals go with /s; write whole numbers a minute, hour or day")
        exact = Fraction(match[1]) / _SECONDS[unit]
        if exact > _MAX_PER_SECOND:
            raise LocalError(f"{name}={text}: the schedule holds at most {_MAX_PER_SECOND:,} recipients a second")
        return cls(text=f"{match[1]}/{unit}", exact=exact)


@dataclass(frozen=True)
class Knobs:
    """What a run is asked to do. `Knobs.read` is the only place that knows the defaults."""

    mails: int
    rate: Rate
    headroom: float
    guard: float
    burst: str
    #: As it was written. The functions cut more than half of the budget to half (docs/decisions.md, 8).
    reserve: Rate
    #: As it was written; empty leaves the template's default.
    slice: str
    model: str
    tenants: int
    #: So many times the mails of each other tenant are tenant-1's.
    skew: Fraction
    priority: int
    horizon_seconds: int
    file: Path | None
    ses_endpoint: str | None
    aws_endpoint_url: str | None
    listen_host: str

    @property
    def budget_per_second(self) -> float:
        """What the schedule may book: headroom × limit."""
        return self.headroom * self.rate.per_second

    @property
    def send_concurrency(self) -> int:
        """Invocations of send at once, by Little's law.

        A batch is up to 10 mails and lasts up to 1 s of waiting for slots and 0.25 s of sending; but mails surface
        when their delays end, so batches are mostly smaller: counted as 3.
        """
        return min(1000, max(10, math.ceil(self.budget_per_second * 1.25 / 3)))

    @property
    def skewed(self) -> bool:
        """Whether tenant-1 has more mails than the others."""
        return self.skew > 1

    @property
    def mails_of_each_other(self) -> int:
        """What each tenant but tenant-1 hands in with SKEW; what the division leaves over is tenant-1's."""
        return max(_LEAST_MAILS, math.floor(self.mails / (self.skew + self.tenants - 1)))

    def tenant_names(self) -> list[str]:
        """The tenants the stack is deployed with; each has a configuration set of its name."""
        return [f"tenant-{number}" for number in range(1, self.tenants + 1)]

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Knobs:
        """Take the knobs from `env`. An empty one counts as not given."""

        def text(name: str, default: str) -> str:
            return env.get(name, "").strip() or default

        def whole(name: str, default: int, least: int, most: int) -> int:
            given = text(name, str(default))
            if not _WHOLE.fullmatch(given) or not least <= int(given) <= most:
                raise LocalError(f"{name}={given}: give a whole number from {least:,} to {most:,}")
            return int(given)

        def share(name: str, default: str) -> float:
            given = text(name, default)
            if not re.fullmatch(r"0\.[0-9]{1,2}|1(\.0{1,2})?", given) or float(given) == 0:
                raise LocalError(f"{name}={given}: give a share from 0.01 to 1, such as {default}")
            return float(given)

        def factor(name: str, most: int) -> Fraction:
            given = text(name, "1")
            if not _NUMBER.fullmatch(given) or not 1 <= Fraction(given) <= most:
                raise LocalError(
                    f"{name}={given}: give a number from 1 to {most:,}, such as 10 or 2.5, with at most three decimals"
                )
            return Fraction(given)

        file = text("FILE", "")
        knobs = cls(
            mails=whole("MAILS", 3000, 0, 10_000_000),
            rate=Rate.parse("RATE", text("RATE", "100")),
            headroom=share("HEADROOM", "0.98"),
            guard=share("GUARD", "0.99"),
            burst=text("BURST", ""),
            reserve=Rate.parse("RESERVE", text("RESERVE", "2")),
            slice=text("SLICE", ""),
            model=text("MODEL", "bucket"),
            tenants=whole("TENANTS", 1, 1, 100),
            skew=factor("SKEW", _MAX_SKEW),
            priority=whole("PRIORITY", 0, 0, 1_000_000),
            horizon_seconds=whole("HORIZON", 60, 1, 900),
            file=Path(file) if file else None,
            ses_endpoint=text("SES_ENDPOINT", "") or None,
            aws_endpoint_url=text("AWS_ENDPOINT_URL", "") or None,
            listen_host=text("LISTEN_HOST", "127.0.0.1"),
        )
        knobs._check()
        return knobs

    def _check(self) -> None:
        """What only shows when the knobs are seen together."""
        if self.rate.per_second <= 0:
            raise LocalError("RATE=0: nothing could ever leave; give a rate above 0")
        if self.model not in ("bucket", "window"):
            raise LocalError(f"MODEL={self.model}: the simulator counts in one of bucket, window")
        if self.headroom > self.guard - 0.01 + 1e-9:
            raise LocalError(
                f"HEADROOM={self.headroom:g} with GUARD={self.guard:g}: keep HEADROOM at least 0.01 below GUARD, "
                "else a stall is never made up for"
            )
        most = max(1, math.floor(self.rate.exact))
        if self.burst and not (_WHOLE.fullmatch(self.burst) and 1 <= int(self.burst) <= most):
            raise LocalError(
                f"BURST={self.burst}: give the recipients the guard may let go at once, a whole number "
                f"from 1 to {most:,} (RATE={self.rate.text})"
            )
        if self.slice and not re.fullmatch(r"0(\.([0-4][0-9]?|50?))?", self.slice):
            raise LocalError(f"SLICE={self.slice}: give a share from 0 to 0.5, such as 0.05, with at most two decimals")
        for name, url in (("SES_ENDPOINT", self.ses_endpoint), ("AWS_ENDPOINT_URL", self.aws_endpoint_url)):
            if url and not re.match(r"https?://[^/\s]+", url):
                raise LocalError(f"{name}={url}: give a URL such as http://127.0.0.1:4566")
        if self.file and not self.file.is_file():
            raise LocalError(f"FILE={self.file}: no such file")
        if not self.file and self.mails + self.priority == 0:
            raise LocalError("MAILS=0 and PRIORITY=0: there is nothing to send")
        if self.skewed:
            self._check_skew()

    def _check_skew(self) -> None:
        """One tenant is to have more than the others: that takes others, and mails to divide."""
        skew = f"SKEW={float(self.skew):.10g}"
        if self.tenants == 1:
            raise LocalError(
                f"{skew} with one tenant: there is nobody to have more than; give TENANTS=2 or more, or leave SKEW out"
            )
        if self.file:
            raise LocalError(
                f"{skew} with FILE={self.file}: only made-up mails are divided; leave one of them out, "
                "the file says whose its mails are"
            )
        if self.mails <= _LEAST_MAILS * self.tenants:
            raise LocalError(
                f"{skew} with MAILS={self.mails} and TENANTS={self.tenants}: tenant-1 hands in more than the others, "
                f"and they {_LEAST_MAILS} each; give MAILS={_LEAST_MAILS * self.tenants + 1} or more, or fewer TENANTS"
            )

    def check_duration(self, recipients: int) -> None:
        """Refuse a run that would take more than a day."""
        seconds = recipients / self.budget_per_second
        if seconds > _DAY_SECONDS:
            most = math.floor(_DAY_SECONDS * self.budget_per_second)
            raise LocalError(
                f"RATE={self.rate.text}: {recipients:,} recipients ÷ {self.budget_per_second:.4g}/s (HEADROOM × RATE) "
                f"are {seconds / 3600:,.1f} hours, more than a day: "
                f"hand in at most {most:,} (MAILS), or set a higher RATE"
            )
