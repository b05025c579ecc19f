"""Every command that the README and the docs show is run: as it stands, on the stack of these tests, with names put in
where the docs have placeholders.

`make` commands are apart. What takes minutes is run by others, and it is said by whom; of what would reach an AWS
account make is asked what it would do.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.local.paths import ROOT
from tests.stack.desk import Desk, key, request, wait_until

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: What runs a target of make other than these tests: a target that `make test` or `.ci/run` needs, by way of which.
BY_CI = {
    "test": "test",
    "test-stack": "test",
    "prove": "test-prove",
    "fuzz": "test-fuzz",
    "chaos": "test-chaos",
    "lint": "",
}
#: These are run here, quickly.
QUICKLY = {"demo": "MAILS=60", "bench": None, "cli": None, "up": None, "down": None, "invoke": None}
#: These take minutes and have tests of their parts: the figures' arithmetic and pages.
WITH_TESTS_OF_THEIR_OWN = {"costs": "tests/local/test_costs.py", "docs": "tests/local/test_costs.py"}
#: These change an AWS account, or remove what these tests stand on.
NOT_HERE = {"deploy", "tenant", "clean"}
#: A command that ends with another code than 0 on a stack where nothing is wrong.
OTHER_CODES: dict[str, int] = {}


def commands() -> list[tuple[str, str]]:
    """Each command line of a fenced block, and each in the text that is a command by itself, with where it stands."""
    found = []
    for path in DOCS:
        text = path.read_text()
        fences = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
        lines = [line.strip() for fence in fences for line in fence.splitlines()]
        outside = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.M | re.S)
        lines += [line for line in re.findall(r"`([^`\n]+)`", outside) if line.startswith("make ")]
        for line in lines:
            line = re.sub(r"\s+#\s.*", "", line)
            if re.match(r"(make( |$)|sendslot |aws )", line):
                found.append((path.name, line))
    return list(dict.fromkeys(found))


MAKE = sorted({line for _, line in commands() if line.split()[0] == "make"})
OTHERS = [(where, line) for where, line in commands() if line.split()[0] != "make"]


def shell(line: str, folder: Path, env: dict[str, str], seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a line as a shell does."""
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=seconds, check=False
    )


def test_the_docs_have_commands() -> None:
    assert len(MAKE) > 15
    assert len(OTHERS) > 25


def test_each_command_for_operators_runs(desk: Desk, send_id: Callable[[], str], tmp_path: Path) -> None:
    """In the order in which they stand."""
    tenant = "tenant-2"
    mail = request(send_id(), tenant)
    desk.hand_in("bulk", [mail])
    desk.settled([key(mail)])
    names = {
        "SEND_ROLE_ARN": "arn:aws:iam::123456789012:role/send",
        "SEND_ID": mail["send_id"],
        "TENANT": tenant,
        "OTHER_TENANT": "tenant-1",
        "ROLE": "producer",
        "CONTROL": desk.stack.outputs["ControlFunctionName"],
        "acme": tenant,
    }
    iam: Any = desk.stack.client("iam")
    iam.create_role(RoleName="producer", AssumeRolePolicyDocument="{}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"
    env = {
        "PATH": os.pathsep.join([str(target), str(ROOT / ".venv" / "stack" / "bin"), os.environ["PATH"]]),
        "HOME": str(tmp_path),
        "USER": "tester",
        "SENDSLOT_STACK": desk.stack.stack_name,
        "AWS_ENDPOINT_URL": desk.stack.endpoint_url,
        "AWS_ENDPOINT_URL_SESV2": desk.stack.ses_endpoint,
        "AWS_REGION": desk.stack.region,
        "AWS_DEFAULT_REGION": desk.stack.region,
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_PAGER": "",
    }
    failed = []
    try:
        for where, line in OTHERS:
            for placeholder, name in names.items():
                line = re.sub(rf"\b{placeholder}\b", name, line)
            # Version 1 of the AWS CLI, which is here, takes a payload as it is without being told to.
            line = line.replace(" --cli-binary-format raw-in-base64-out", "")
            ran = shell(line, ROOT, env)
            if ran.returncode != OTHER_CODES.get(line, 0):
                failed.append(f"{where}: {line}\n  ended with {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    finally:
        shell(f"sendslot resume {tenant} --rate 40/s", ROOT, env)
    assert not failed, "\n".join(failed)
    again = request(send_id(), tenant)
    desk.hand_in("bulk", [again])
    desk.settled([key(again)])
    wait_until(desk.queues.empty, lambda: "something is still under way")


@pytest.mark.parametrize("line", MAKE)
def test_each_make_command_is_one(line: str) -> None:
    """Make knows it, with these variables; and somebody runs it."""
    targets = [word for word in line.split()[1:] if re.fullmatch(r"[a-z-]+", word)]
    would = shell(re.sub("^make", "make -n", line), ROOT, dict(os.environ))
    assert would.returncode == 0, would.stderr
    for name in targets:
        assert name in {*BY_CI, *QUICKLY, *WITH_TESTS_OF_THEIR_OWN, *NOT_HERE}, f"nobody runs make {name}"
    makefile = (ROOT / "Makefile").read_text()
    needed = re.search(r"^test: (.*?) ##", makefile, re.M)
    assert needed
    for name in set(targets) & BY_CI.keys():
        via = BY_CI[name]
        assert f"make {name}" in (ROOT / ".ci" / "run").read_text() or via == "test" or via in needed[1].split()


def test_the_demo_and_the_stack_that_stays_up_run() -> None:
    """`make demo`, `make up`, `make invoke`, `make down` and `make cli`, on ports of their own."""
    assert not (ROOT / "out" / "stack.json").exists(), "a stack is up here: run `make down` first"
    env = dict(os.environ)
    steps = [
        f"make demo {QUICKLY['demo']}",
        "make up",
        *(line for line in MAKE if line.startswith("make invoke")),
        "make down",
        "make cli",
    ]
    for step in steps:
        ran = shell(step, ROOT, env, seconds=400)
        assert ran.returncode == 0, f"{step}: {ran.stdout[-800:]}{ran.stderr[-800:]}"


def test_the_bench_runs() -> None:
    """Of what it measures nothing is asserted here: other tests run beside it."""
    ran = shell("make bench", ROOT, dict(os.environ), seconds=400)
    assert ran.returncode in (0, 1), ran.stderr
    assert "ratio" in (ROOT / "out" / "bench.json").read_text()
