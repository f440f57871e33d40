"""All measurements of this folder on one GPU, and a report of them.

    python bench/gpu/all.py [OUT] [--models MODEL ...] [--small]

Each part is a process of its own with at most ten minutes; the next one runs also if a part fails. OUT (by
default runs/bench-gpu) receives a JSON file and a log of each part, `report.json` and `report.html`. The
status is not 0 if a part failed. No hub, data or checkpoint is needed. `--small` takes tiny shapes, on any
device.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from uivlm import atomic
from uivlm.reports.html import render

MODELS = ("qwen_vl", "qwen2_5_vl")
PARTS = ("attention_kernels", "action", "training")  # programs of this folder; the longest one last
MAX_SECONDS = 600
SMALL_NOTE = "Tiny shapes: these figures say nothing about a full-size model."


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", default=Path("runs/bench-gpu"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--small", action="store_true", help="tiny shapes, on any device")
    args = parser.parse_args()
    try:
        atomic.check_new_dir(args.out)
    except ValueError as error:
        parser.error(str(error))
    args.out.mkdir(parents=True, exist_ok=True)
    console, results = Console(), list[dict[str, Any]]()
    for name in PARTS:
        for model in args.models:
            results.append(run_part(name, model, args.out, args.small))
            console.print(f"{name} {model}: {results[-1]['status']}, {results[-1]['seconds']:.0f} s")
            write_report(args.out, results, args.small)
    console.print(f"{args.out / 'report.html'}")
    return 0 if all(result["status"] == "finished" for result in results) else 1


def run_part(
    name: str, model: str, out: Path, small: bool, max_seconds: float = MAX_SECONDS
) -> dict[str, Any]:
    """Its status, its time, and what it wrote; of a failed part, what it wrote before."""
    program = Path(__file__).parent / f"{name}.py"
    command = [sys.executable, str(program), str(out), model, *(["--small"] if small else [])]
    log = out / f"{name}_{model}.log"
    started = time.monotonic()
    with log.open("w") as file:
        try:
            code = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=MAX_SECONDS, check=False
            ).returncode
            status = "finished" if code == 0 else f"failed with status {code}: see {log.name}"
        except subprocess.TimeoutExpired:
            status = f"stopped after {MAX_SECONDS} s"
    written = out / f"{name}_{model}.json"
    return {
        "part": name,
        "model": model,
        "status": status,
        "seconds": time.monotonic() - started,
        "result": json.loads(written.read_text("utf-8")) if written.is_file() else None,
    }


def write_report(out: Path, results: list[dict[str, Any]], small: bool) -> None:
    """report.json and report.html of the parts so far."""
    atomic.write_file(out / "report.json", json.dumps({"small": small, "parts": results}, indent=1))
    finished = [part["result"] for part in results if part["result"]]
    machine = finished[0]["machine"] if finished else {}
    page = render(
        "measurements",
        title=f"Measurements on {machine.get('device', 'this machine')}",
        notes=[
            ", ".join(f"{name} {version}" for name, version in machine.items() if name != "device"),
            "Random weights of the published shapes, on random screens.",
            *([SMALL_NOTE] if small else []),
        ],
        overview={
            "headings": ["part", "model", "seconds", "status"],
            "rows": [[p["part"], p["model"], _text(p["seconds"]), p["status"]] for p in results],
        },
        sections=[_section(result) for result in finished],
    )
    atomic.write_file(out / "report.html", page)


def _section(result: dict[str, Any]) -> dict[str, Any]:
    headings = list(dict.fromkeys(name for row in result["rows"] for name in row))
    return {
        "title": f"{result['part']}: {result['model']}",
        "facts": [[name, _text(value)] for name, value in result["facts"].items()],
        "headings": headings,
        "rows": [[_text(row.get(name)) for name in headings] for row in result["rows"]],
    }


def _text(value: str | float | bool | None) -> str:
    """A cell: three digits of a fraction, a dash for what was not measured."""
    match value:
        case None:
            return "-"
        case float():
            return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
