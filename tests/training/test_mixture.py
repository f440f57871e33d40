"""Several folders of data in one run, by weight."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.tiny_models import base, episode, prepare, recipe
from uivlm.recipe import DataArgs, ExtraDataset, Recipe, RecipeError, from_dict, override, to_dict
from uivlm.training.mixture import ConcatEpisodes, MixtureSampler, make_mixture_sampler, open_datasets
from uivlm.training.train import train


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mixture")
    base(made / "base")
    prepare(made / "one", [episode(i, n) for i, n in enumerate((1, 6, 2))])
    prepare(made / "two", [episode(10 + i, n) for i, n in enumerate((3, 1, 2, 4))])
    return made


def mixed(root: Path, weight: float, **train: object) -> Recipe:
    also = ExtraDataset(str(root / "two"), weight)
    return replace(
        recipe(root / "base", root / "one", **train), data=DataArgs(str(root / "one"), extra=(also,))
    )


@pytest.mark.parametrize("weight", [0.3, 0.5, 1.0, 1.6, 3.0])
def test_an_epoch_takes_each_source_by_its_weight(weight: float) -> None:
    one = MixtureSampler((40, 100), (1.0, weight))
    assert one.num_samples == [40, round(100 * weight)]
    for epoch in range(5):
        taken = Counter(one.sample_epoch(7, epoch))
        assert all(taken[row] == 1 for row in range(40))
        assert sum(taken[row] for row in range(40, 140)) == round(100 * weight)
        assert {taken[row] for row in range(40, 140)} <= {int(weight), int(weight) + 1}


def test_each_epoch_takes_other_rows_and_the_same_seed_the_same() -> None:
    one = MixtureSampler((10, 100), (1.0, 0.5))
    assert one.sample_epoch(0, 0) == one.sample_epoch(0, 0)
    assert one.sample_epoch(0, 0) != one.sample_epoch(0, 1)
    assert one.sample_epoch(0, 0) != one.sample_epoch(1, 0)
    seen = set[int]().union(*(one.sample_epoch(0, epoch) for epoch in range(12)))
    assert seen == set(range(110)), "no row is left out for ever"


def test_episodes_of_all_sources_one_after_the_other(root: Path) -> None:
    joined = ConcatEpisodes(open_datasets(mixed(root, 0.5)))
    assert [len(one.steps) for one in joined] == joined.num_steps == [1, 6, 2, 3, 1, 2, 4]
    assert [one.id for one in joined[2:4]] == [joined[2].id, joined[3].id]
    for outside in (-1, 7):
        with pytest.raises(IndexError):
            joined[outside]


@pytest.mark.slow
def test_a_run_on_two_folders(root: Path, tmp_path: Path) -> None:
    """Also with kept features: the same losses."""
    logs = []
    for keep in (False, True):
        one = mixed(root, 0.5, epochs=2.0, cache_vision_features=keep)
        assert make_mixture_sampler(open_datasets(one), [4, 4]).num_samples == [4, 2]
        out = train(one, tmp_path / str(keep))
        logs.append([json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()])
    assert len(logs[0]) == 2 * 3  # six rows an epoch, two a step
    assert logs[1] == pytest.approx(logs[0], rel=1e-4)
    card = json.loads((out / "card.json").read_text())
    assert [(one["episodes"], one["windows"], one["weight"]) for one in card["data"]] == [
        (3, 4, 1.0),
        (4, 4, 0.5),
    ]


def test_a_mixture_is_a_setting(root: Path) -> None:
    plain = recipe(root / "base", root / "one")
    one = override(plain, ['data.extra=[{"path": "more", "weight": 0.1}]'])
    assert one.data.extra == (ExtraDataset("more", 0.1),)
    assert from_dict(json.loads(json.dumps(to_dict(one)))) == one
    for weight in ("0", "-1", "1000"):
        with pytest.raises(RecipeError, match=f"data.extra.weight is {weight}"):
            override(plain, [f'data.extra=[{{"path": "more", "weight": {weight}}}]'])


def test_each_folder_must_hold_episodes_of_the_same_bins(root: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "other", [episode(0, 2)], bins=50)
    one = mixed(root, 1.0)
    with pytest.raises(ValueError, match="prompt.num_bins: got 100; expected 50, .*other"):
        open_datasets(replace(one, data=replace(one.data, extra=(ExtraDataset(str(tmp_path / "other")),))))
    with pytest.raises(ValueError, match="data.split: got 'test', which is empty in .*two"):
        open_datasets(
            replace(one, data=replace(one.data, extra=(ExtraDataset(str(root / "two"), split="test"),)))
        )
