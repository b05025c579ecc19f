"""Make `.venv/NAME` from `requirements/NAME.txt`, once.

    python3 tests/local/venv.py stack sam

A stamp holds the hash of the requirements and of the Python, so that a second run only compares,
and a changed pin or an interrupted install starts afresh. Standard library alone, and old syntax:
this file must start on any Python 3 in order to say which one is needed.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 10)
# Not the python of an environment that happens to be active: it may be the one to be made.
PYTHON = getattr(sys, "_base_executable", sys.executable)


def stamp_of(requirements):
    """What the environment was made from, as text."""
    digest = hashlib.sha256(requirements.read_bytes())
    digest.update(sys.version.encode() + PYTHON.encode())
    return digest.hexdigest() + "\n"


def make(name):
    """Install the environment unless its stamp says that it is there."""
    requirements = ROOT / "requirements" / (name + ".txt")
    if not requirements.exists():
        sys.exit("error: no requirements/{0}.txt: there is no environment called {0}".format(name))
    folder = ROOT / ".venv" / name
    stamp = folder / "stamp"
    wanted = stamp_of(requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("installing requirements/{0}.txt into .venv/{0}".format(name), flush=True)
    shutil.rmtree(str(folder), ignore_errors=True)
    made = subprocess.run([PYTHON, "-m", "venv", str(folder)], check=False)
    if made.returncode != 0:
        sys.exit(
            "error: {0} can't make a virtual environment: install its venv module "
            "(on Debian and Ubuntu: python3-venv)".format(PYTHON)
        )
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if subprocess.run([*pip, "--requirement", str(requirements)], check=False).returncode != 0:
        sys.exit("error: could not install requirements/{0}.txt: see above, then run make again".format(name))
    stamp.write_text(wanted)


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(
            "error: Python {0}.{1} or newer is needed and this is {2}: run make PYTHON=/path/to/python3".format(
                OLDEST[0], OLDEST[1], sys.version.split()[0]
            )
        )
    for wanted_name in sys.argv[1:]:
        make(wanted_name)
