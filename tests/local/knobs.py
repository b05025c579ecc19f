"""The demo's knobs: environment variables, as `make demo RATE=14 MODEL=window` sets them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from .errors import LocalError

_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(?:/(s|m|min|h|d))?")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Rate:
    """Recipients per time, kept as it was written so that the template gets the same text."""

    text: str
    per_second: float

    @classmethod
    def parse(cls, name: str, text: str) -> Rate:
        """`100`, `0.8/s`, `20/h`."""
        match = _RATE.fullmatch(text.strip())
        if not match:
            raise LocalError(f"{name}={text}: write a rate such as 100, 0.8/s or 20/h")
        unit = match[2] or "s"
        exact = Fraction(match[1]) / _SECONDS[unit]
        return cls(text=f"{match[1]}/{unit}", per_second=float(exact))


@dataclass(frozen=True)
class Knobs:
    """What a run is asked to do. `Knobs.read` is the only place that knows the defaults."""

    mails: int
    rate: Rate
    headroom: float
    guard: float
    burst: str
    reserve: Rate
    model: str
    tenants: int
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
            if not re.fullmatch(r"\d+", given) or not least <= int(given) <= most:
                raise LocalError(f"{name}={given}: give a whole number from {least:,} to {most:,}")
            return int(given)

        def share(name: str, default: str) -> float:
            given = text(name, default)
            try:
                value = float(given)
            except ValueError:
                value = math.nan
            if not 0 < value <= 1:
                raise LocalError(f"{name}={given}: give a share of the limit above 0 and at most 1, such as {default}")
            return value

        file = text("FILE", "")
        knobs = cls(
            mails=whole("MAILS", 3000, 0, 10_000_000),
            rate=Rate.parse("RATE", text("RATE", "100")),
            headroom=share("HEADROOM", "0.98"),
            guard=share("GUARD", "0.99"),
            burst=text("BURST", ""),
            reserve=Rate.parse("RESERVE", text("RESERVE", "2")),
            model=text("MODEL", "bucket"),
            tenants=whole("TENANTS", 1, 1, 1000),
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
        if self.burst:
            try:
                burst = float(self.burst)
            except ValueError:
                burst = math.nan
            if not burst >= 1:
                raise LocalError(f"BURST={self.burst}: give the recipients the guard may let go at once, 1 or more")
        if self.reserve.per_second > self.budget_per_second:
            raise LocalError(
                f"RESERVE={self.reserve.text}: more than the budget of {self.budget_per_second:g}/s "
                "(HEADROOM × RATE), so no bulk mail could ever go"
            )
        if self.file and not self.file.is_file():
            raise LocalError(f"FILE={self.file}: no such file")
        if not self.file and self.mails + self.priority == 0:
            raise LocalError("MAILS=0 and PRIORITY=0: there is nothing to send")
