"""Where the repository's files are."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = Path(os.environ.get("UIVLM_GOLDEN") or ROOT / "tests" / "golden")
REAL = ROOT.parent / "shared" / "real"  # real recordings, next to the repository and never in it
