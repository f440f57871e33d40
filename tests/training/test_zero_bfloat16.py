"""bfloat16 under ZeRO: gradients are summed in float32, and the checkpoint holds the float32 masters."""

from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.helpers import two_process
from tests.helpers.paths import ROOT
from tests.helpers.tiny_models import base, episode, prepare
from uivlm.recipe import load, override
from uivlm.training.train import train

pytestmark = [
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed"),
    pytest.mark.slow,
]

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
    "DS_ACCELERATOR": "cpu",
    "TORCH_EXTENSIONS_DIR": "/dev/null/extensions",  # no op is to be compiled
}
SETTINGS = [
    "train.gradient_accumulation_steps=4",
    "train.per_device_batch_size=1",
    "train.precision=bfloat16",
    "train.epochs=2",
    "train.cache_vision_features=false",
    "train.num_workers=0",
    "train.report_to=[]",
    "optim.lr=0.001",
    "optim.warmup_fraction=0",
]
WEIGHTS = ("adapter_model.safetensors", "projector.safetensors")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bfloat16")
    prepare(root / "data", [episode(i, n) for i, n in enumerate((3, 1, 2, 4, 2, 3, 1, 2))])
    base(root / "base")
    return root


def settings(root: Path, stage: int) -> list[str]:
    paths = [f"model.base_model={root / 'base'}", f"data.path={root / 'data'}"]
    return [*SETTINGS, *paths, f"distributed.zero_stage={stage}"]


def trained(
    parent: ProcessPoolExecutor, root: Path, folder: Path, stage: int, count: int
) -> dict[str, dict[str, torch.Tensor]]:
    """What the helper's run must equal; its checkpoint is `folder / "out"`."""
    program = [str(ROOT / "tests" / "helpers" / "zero_bfloat16.py"), "tiny", str(folder / "out")]
    program += settings(root, stage)
    processes = two_process.begin(parent, program, folder / "said", ENVIRONMENT, count)
    codes = two_process.ended(parent, processes)
    assert codes == [0] * count, (folder / "said").read_text()[-8000:]
    return torch.load(folder / "expected.pt")  # type: ignore[no-any-return]


def saved(out: Path) -> dict[str, torch.Tensor]:
    return {name: value for file in WEIGHTS for name, value in load_file(out / file).items()}


Run = tuple[Path, dict[str, dict[str, torch.Tensor]]]  # its checkpoint, and what it must equal


@pytest.fixture(scope="module")
def two(root: Path, parent: ProcessPoolExecutor, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two processes with stage 2."""
    folder = tmp_path_factory.mktemp("two")
    return folder / "out", trained(parent, root, folder, 2, 2)


def test_the_checkpoint_holds_the_float32_masters(two: Run) -> None:
    out, expected = two
    adapters, projector = (load_file(out / file) for file in WEIGHTS)
    found = {name.replace(".weight", ".default.weight"): value for name, value in adapters.items()}
    found |= {f"base_model.model.projection.{name}": value for name, value in projector.items()}
    assert {value.dtype for value in found.values()} == {torch.float32}
    assert found.keys() == expected["masters"].keys()
    assert all(torch.equal(value, expected["masters"][name]) for name, value in found.items())
    rounded = torch.cat([(value != value.bfloat16().float()).flatten() for value in found.values()])
    assert rounded.float().mean() > 0.9, "bfloat16 could not hold them"


def test_gradients_are_accumulated_in_float32(
    root: Path, parent: ProcessPoolExecutor, tmp_path: Path
) -> None:
    """Against the sum of the four backward passes in float64, in one process: nothing is averaged."""
    run = trained(parent, root, tmp_path, 2, 1)
    assert run["summed"].keys() == run["accumulated"].keys() != set()
    for name, expected in run["summed"].items():
        error = (run["accumulated"][name].double() - expected).abs().max()
        assert float(error) <= 1e-6 * float(expected.abs().max()), name


@pytest.mark.parametrize("stage", [1, 2])
def test_the_weights_are_those_of_float32_within_the_rounding_of_bfloat16(
    root: Path, two: Run, parent: ProcessPoolExecutor, tmp_path: Path, stage: int
) -> None:
    """Adam makes whole steps of tiny gradients too: of these, rounding can turn the sign."""
    out = two[0] if stage == 2 else tmp_path / "out"
    if stage == 1:
        trained(parent, root, tmp_path, 1, 2)
    changes = [*settings(root, 0), "train.precision=float32", "train.per_device_batch_size=2"]
    exact = saved(train(override(load("tiny"), changes), tmp_path / "exact"))
    start = saved(train(override(load("tiny"), [*changes, "optim.lr=1e-30"]), tmp_path / "start"))
    found = saved(out)
    assert {value.dtype for value in found.values()} == {torch.float32}
    moved = torch.cat([(exact[name] - start[name]).flatten() for name in exact])
    error = torch.cat([(exact[name] - found[name]).flatten() for name in exact])
    assert moved.abs().max() > 1e-3
    assert error.abs().max() < 4.1e-3, "two steps in the other direction"
    assert error.norm() < 0.25 * moved.norm()
