"""The functions as built by cargo, and the template pointed at them.

For AWS, `sam build` compiles each function by itself, in its own folder. Doing so here would compile
the AWS SDK once per function and once more for the tests, since cargo picks a dependency's features
by what is built together. So all binaries come from one `cargo build` of the workspace, as the tests
have it, and `sam deploy` gets the same template with other paths.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from .errors import LocalError
from .paths import ROOT
from .tools import target_folder

BINARIES = ("reserve", "send", "control", "quota-refresh", "feedback", "auto-pause", "ses-simulator")
#: What `cargo build` is told, so that it finds all done after `cargo test`, and the other way round.
CARGO_BUILD = ("build", "--quiet", "--workspace", *(f"--bin={name}" for name in BINARIES))


def package(out: Path) -> Path:
    """Put the functions and the template under `out`; the template's path."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)

    def code(found: re.Match[str]) -> str:
        name = found[1]
        (out / name).mkdir()
        _bootstrap(target_folder() / name, out / name / "bootstrap")
        return f"CodeUri: {out / name}"

    text, functions = re.subn(r"CodeUri: functions/([a-z-]+)", code, (ROOT / "template.yaml").read_text())
    text, nested = re.subn(r"TemplateURL: (infra/[a-z-]+\.yaml)", rf"TemplateURL: {ROOT}/\1", text)
    if not functions or not nested:
        raise LocalError("template.yaml: found no CodeUri under functions/ or no TemplateURL under infra/")
    template = out / "template.yaml"
    template.write_text(text)
    return template


def _bootstrap(binary: Path, to: Path) -> None:
    """Copy without debug information, which is most of the file and would be zipped and unzipped."""
    strip = shutil.which("strip")
    if not strip or subprocess.run([strip, "--strip-debug", "-o", to, binary], check=False).returncode != 0:
        shutil.copy(binary, to)
    to.chmod(0o755)
