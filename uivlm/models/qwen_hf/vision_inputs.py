"""What transformers' vision encoders derive from the sizes of the screens, computed on the CPU.

In: an encoder and the grids of its screens, on the CPU. Out: keyword arguments of its forward, on the device
of the patches. Otherwise the encoders read the grids on the GPU, and wait for it at each reading.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import vision_utils


def vision_inputs(visual: Any, grids_N3: Tensor, device: torch.device) -> dict[str, Any]:
    """Tensors, and lengths as Python numbers. `grids_N3`: times, rows and columns of patches of a screen."""
    merge = visual.spatial_merge_size
    bounds = {"cu_seqlens": vision_utils.get_vision_cu_seqlens(grids_N3)}
    inputs = {"position_ids": vision_utils.get_vision_position_ids(grids_N3, merge), **bounds}
    if hasattr(visual, "window_size"):
        window, bounds["cu_window_seqlens"] = vision_utils.get_vision_window_index(
            grids_N3, merge, visual.window_size, visual.patch_size
        )
        inputs |= {"window_index": window, **bounds}
    if hasattr(visual, "interpolation_mode"):
        indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            grids_N3,
            num_grid_per_side=visual.num_grid_per_side,
            mode=visual.interpolation_mode,
            align_corners=visual.interpolation_align_corners,
            spatial_merge_size=merge,
        )
        inputs |= {"interp_indices": indices, "interp_weights": weights}
    lengths = {name.replace("cu_", "max_").removesuffix("s"): _longest(ends) for name, ends in bounds.items()}
    return {name: value.to(device, non_blocking=True) for name, value in inputs.items()} | lengths


def _longest(bounds: Tensor) -> int:
    return int(bounds.diff().max())
