"""Where things are. Everything made is under `out/`, `.venv/`, `.aws-sam/` and `target/`."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out"
STACK_FILE = OUT / "stack.json"
STACK_VENV = ROOT / ".venv" / "stack"
SAM_VENV = ROOT / ".venv" / "sam"
LUA = ROOT / "functions" / "shared" / "schedule"


def shown(path: Path) -> str:
    """The path as people type it: from the root of the repository if it is inside."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
