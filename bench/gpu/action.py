"""Milliseconds of one action at each step of an episode, with the recipe's own window and random weights.

    python bench/gpu/action.py OUT MODEL [--small]

Greedy decoding with the prefix cache, on random screens of a phone's size. With random weights a constrained
answer may be of any length. So it is unconstrained, and each has as many tokens as a tap. At some steps the
window advances and a part of it is read again: the maximum shows it. Each step has a floor, what the device
must read and compute at least (bench/shared/roofline.py). torch's profiler counts kernels and
synchronizations of the last action.
"""

import statistics

import torch
from part import Part, parse_arguments
from shared.actions import random_checkpoint, time_actions, without_capture
from shared.episodes import phone_episode
from shared.roofline import count_weight_bytes, latency_floors, measure_device
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from uivlm.episodes.episode import Episode
from uivlm.inference.engine import TorchEngine
from uivlm.inference.load import LoadedCheckpoint
from uivlm.models.cost import SCREEN_SIZE

NUM_STEPS, NUM_REPEATS = 24, 3
SMALL_NUM_STEPS, SMALL_NUM_REPEATS, SMALL_SCREEN_SIZE = 6, 1, (96, 64)
NUM_TOKEN_TRIALS = 5
NUM_NEW_TOKENS = 6  # of each answer; a tap has five or six
SYNCHRONIZATIONS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


def main() -> None:
    part = parse_arguments("action", __doc__)
    checkpoint = random_checkpoint(part.recipe(), str(part.device))
    num_steps, num_repeats = (SMALL_NUM_STEPS, SMALL_NUM_REPEATS) if part.small else (NUM_STEPS, NUM_REPEATS)
    episode = phone_episode(num_steps, SMALL_SCREEN_SIZE if part.small else SCREEN_SIZE)
    engine = TorchEngine(checkpoint, max_new_tokens=NUM_NEW_TOKENS, constrained=False)
    runs = []
    for _ in range(1 + num_repeats):  # the first one selects kernels
        engine.reset_cache()
        runs.append(time_actions(engine, episode, range(num_steps)))
    median = {t: statistics.median(run[t] for run in runs[1:]) for t in range(num_steps)}
    floors = latency_floors(
        TorchEngine(without_capture(checkpoint), max_new_tokens=NUM_NEW_TOKENS, constrained=False),
        episode,
        range(num_steps),
        measure_device(checkpoint.model),
        count_weight_bytes(checkpoint.model),
    )
    rows = [
        {"step": t + 1, "ms": ms, "floor_ms": 1000 * floors[t], "ratio": ms / 1000 / floors[t]}
        for t, ms in median.items()
    ]
    facts = {
        "median_ms": statistics.median(median.values()),
        "max_ms": max(median.values()),
        "tokens": NUM_NEW_TOKENS,
        "ms_per_token": _ms_per_token(checkpoint, episode, num_steps - 1),
        **_profile_action(engine, episode, num_steps - 1, part),
    }
    part.write(facts, rows)


def _ms_per_token(checkpoint: LoadedCheckpoint, episode: Episode, t: int) -> float:
    """What each token after the first one adds to the action at step `t`, whose past is cached."""
    best_ms = []
    for count in (1, NUM_NEW_TOKENS):
        engine = TorchEngine(checkpoint, max_new_tokens=count, constrained=False)
        time_actions(engine, episode, (t - 1, t))  # reads the past, and captures
        best_ms.append(min(time_actions(engine, episode, (t,))[t] for _ in range(NUM_TOKEN_TRIALS)))
    return (best_ms[1] - best_ms[0]) / (NUM_NEW_TOKENS - 1)


def _profile_action(engine: TorchEngine, episode: Episode, t: int, part: Part) -> dict[str, int | None]:
    """Counts of the action at step `t`, whose past is cached."""
    engine.reset_cache()
    engine.predict(episode.history(t - 1))
    is_cuda = part.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if is_cuda else [])]
    with profile(activities=activities) as profiler:
        engine.predict(episode.history(t))
        if is_cuda:
            torch.cuda.synchronize()
    events = profiler.events()
    kernels = sum(
        event.device_type == DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset"))
        for event in events
    )
    waits = sum(event.name in SYNCHRONIZATIONS for event in events) - 1  # without the last one, which is ours
    return {
        "operators": sum(event.name.startswith("aten::") for event in events),
        "kernels": kernels if is_cuda else None,
        "synchronizations": waits if is_cuda else None,
    }


if __name__ == "__main__":
    main()
