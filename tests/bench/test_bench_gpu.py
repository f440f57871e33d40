"""bench/gpu: the whole of it with tiny shapes on this machine, and a part that fails."""

import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import pytest
import torch

from tests.helpers import two_process
from tests.helpers.paths import ROOT

pytestmark = pytest.mark.slow

FOLDER = ROOT / "bench" / "gpu"


@pytest.fixture(scope="module")
def every_part() -> ModuleType:
    spec = importlib.util.spec_from_file_location("every_part", FOLDER / "all.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def out(
    every_part: ModuleType, parent: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Each part is a process of its own that need not import torch again."""
    folder = tmp_path_factory.mktemp("bench") / "out"

    def run(command: list[str], stdout: IO[str], **_: Any) -> subprocess.CompletedProcess[str]:
        process = two_process.begin_alone(parent, command[1:], Path(stdout.name))
        return subprocess.CompletedProcess(command, *two_process.ended(parent, [process]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(every_part.subprocess, "run", run)
        patch.setattr(sys, "argv", ["all.py", str(folder), "--models", "qwen2_5_vl", "--small"])
        status = every_part.main()
    logs = "".join(file.read_text("utf-8")[-2000:] for file in folder.glob("*.log"))
    assert status == 0, logs
    return folder


@pytest.fixture(scope="module")
def results(out: Path) -> dict[str, dict[str, Any]]:
    report = json.loads((out / "report.json").read_text("utf-8"))
    assert report["small"] is True
    assert all(part["status"] == "finished" and 0 < part["seconds"] < 600 for part in report["parts"])
    return {part["part"]: part["result"] for part in report["parts"]}


def test_every_part_is_in_the_report(
    out: Path, results: dict[str, dict[str, Any]], every_part: ModuleType
) -> None:
    assert list(results) == list(every_part.PARTS)
    page = (out / "report.html").read_text("utf-8")
    for name, result in results.items():
        assert json.loads((out / f"{name}_qwen2_5_vl.json").read_text("utf-8")) == result
        assert f"<h2>{name}: qwen2_5_vl</h2>" in page
        assert {"device", "torch", "transformers"} <= result["machine"].keys()
    assert every_part.SMALL_NOTE in page


def test_training(results: dict[str, dict[str, Any]]) -> None:
    rows = {row["settings"]: row for row in results["training"]["rows"]}
    assert list(rows) == ["the recipe", "no activation checkpointing", "twice the tokens", "padded"]
    assert [row["packed_tokens"] for row in rows.values()] == [1024, 1024, 2048, None]
    for row in rows.values():
        assert 0 < row["mfu"] < 1
        assert row["slowest_step"] >= row["seconds_per_step"] > 0
        assert row["tflops"] < row["tokens_per_second"]
        assert row["peak_gb"] > 0.1
        assert row["estimated_gb"] > 0.1
    assert rows["no activation checkpointing"]["estimated_gb"] != rows["the recipe"]["estimated_gb"]


def test_action(results: dict[str, dict[str, Any]]) -> None:
    rows, facts = results["action"]["rows"], results["action"]["facts"]
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    assert facts["max_ms"] == max(row["ms"] for row in rows)
    assert min(row["ms"] for row in rows) <= facts["median_ms"] <= facts["max_ms"]
    assert 0 < facts["ms_per_token"] < facts["median_ms"]
    assert all(row["floor_ms"] > 0 and row["ratio"] > 0 for row in rows)
    assert facts["operators"] > 100


def test_attention_kernels(results: dict[str, dict[str, Any]]) -> None:
    result = results["attention_kernels"]
    assert result["facts"] == {"vision_features_require_grad": False}
    kernels = {name: [row for row in result["rows"] if row["pass"] == name] for name in ("vision", "packed")}
    assert all("flash" in row["kernel"] for rows in kernels.values() for row in rows)
    assert not any("backward" in row["kernel"] for row in kernels["vision"])
    assert any("backward" in row["kernel"] for row in kernels["packed"])


def test_a_failed_part_is_reported(
    every_part: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The others run, the report names it, and the status is not 0."""
    programs = {
        "broken": "raise SystemExit('no such model')",
        "endless": "import time; time.sleep(60)",
        "good": (
            "import sys, json, pathlib; out, model = sys.argv[1:3]\n"
            "result = {'part': 'good', 'model': model, 'machine': {'device': 'CPU'}}\n"
            "result |= {'facts': {'x': 0.12345}, 'rows': [{'a': 1}, {'b': None}]}\n"
            "pathlib.Path(out, f'good_{model}.json').write_text(json.dumps(result))"
        ),
    }
    for name, text in programs.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setattr(every_part, "__file__", str(tmp_path / "all.py"))
    monkeypatch.setattr(every_part, "PARTS", tuple(programs))
    monkeypatch.setattr(every_part, "MAX_SECONDS", 2)
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["all.py", str(out), "--models", "qwen_vl", "--small"])
    assert every_part.main() == 1
    statuses = [part["status"] for part in json.loads((out / "report.json").read_text("utf-8"))["parts"]]
    assert statuses == ["failed with status 1: see broken_qwen_vl.log", "stopped after 2 s", "finished"]
    assert "no such model" in (out / "broken_qwen_vl.log").read_text("utf-8")
    page = (out / "report.html").read_text("utf-8")
    assert "<td>0.123</td>" in page
    assert "stopped after 2 s" in page
    monkeypatch.setattr(sys, "argv", ["all.py", str(out)])
    with pytest.raises(SystemExit, match="2"):
        every_part.main()
    assert "already exists" in capsys.readouterr().err


def test_the_published_size_needs_a_gpu(parent: ProcessPoolExecutor, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    program = [str(FOLDER / "action.py"), str(tmp_path / "out"), "qwen_vl"]
    process = two_process.begin_alone(parent, program, tmp_path / "output")
    assert two_process.ended(parent, [process]) == [2]
    assert "needs a CUDA GPU" in (tmp_path / "output").read_text()
    assert not (tmp_path / "out").exists()
