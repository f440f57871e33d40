"""The peak in a GPU's data sheet, and the share of it that is logged."""

import pytest
import torch

from uivlm.training.metrics import Meter, StepCounts, datasheet_flops


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce RTX 3090", None),
        ("", None),
    ],
)
def test_peaks_of_the_data_sheets(name: str, flops: float | None) -> None:
    assert datasheet_flops(name, torch.bfloat16) == flops
    assert datasheet_flops(name, torch.float32) is None


def test_both_shares_are_of_the_same_operations() -> None:
    for stated in (None, 4e3):
        meter = Meter(lambda sums: sums, 2e3, stated)
        meter.add(torch.ones(2), torch.tensor([0, 1]), StepCounts(9, 2, 1, 1e3))
        metrics = meter.flush()
        assert ("mfu_datasheet" in metrics) == (stated is not None)
        if stated is not None:
            assert metrics["mfu_datasheet"] == pytest.approx(metrics["mfu"] / 2)
