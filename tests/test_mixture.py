"""Several folders of data in one run, by weight."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from bridges import base, episode, prepare, recipe

from uivlm.models.model import grammar
from uivlm.recipe import Also, Data, Recipe, RecipeError, from_dict, override, to_dict
from uivlm.training.mixture import Joined, Shares, open_sources, shares
from uivlm.training.trainer import train


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mixture")
    base(made / "base")
    prepare(made / "one", [episode(i, n) for i, n in enumerate((1, 6, 2))])
    prepare(made / "two", [episode(10 + i, n) for i, n in enumerate((3, 1, 2, 4))])
    return made


def mixed(root: Path, weight: float, **train: object) -> Recipe:
    also = Also(str(root / "two"), weight)
    return replace(recipe(root / "base", root / "one", **train), data=Data(str(root / "one"), also=(also,)))


@pytest.mark.parametrize("weight", [0.3, 0.5, 1.0, 1.6, 3.0])
def test_an_epoch_takes_each_source_by_its_weight(weight: float) -> None:
    one = Shares((40, 100), (1.0, weight))
    assert one.taken == [40, round(100 * weight)]
    for epoch in range(5):
        taken = Counter(one.epoch(7, epoch))
        assert all(taken[row] == 1 for row in range(40))
        assert sum(taken[row] for row in range(40, 140)) == round(100 * weight)
        assert {taken[row] for row in range(40, 140)} <= {int(weight), int(weight) + 1}


def test_each_epoch_takes_other_rows_and_the_same_seed_the_same() -> None:
    one = Shares((10, 100), (1.0, 0.5))
    assert one.epoch(0, 0) == one.epoch(0, 0)
    assert one.epoch(0, 0) != one.epoch(0, 1)
    assert one.epoch(0, 0) != one.epoch(1, 0)
    seen = set[int]().union(*(one.epoch(0, epoch) for epoch in range(12)))
    assert seen == set(range(110)), "no row is left out for ever"


def test_episodes_of_all_sources_one_after_the_other(root: Path) -> None:
    joined = Joined(open_sources(mixed(root, 0.5)))
    assert [len(one.steps) for one in joined] == joined.num_steps == [1, 6, 2, 3, 1, 2, 4]
    assert [one.id for one in joined[2:4]] == [joined[2].id, joined[3].id]
    for outside in (-1, 7):
        with pytest.raises(IndexError):
            joined[outside]


def test_a_run_on_two_folders(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with kept features: the same losses."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    logs = []
    for keep in (False, True):
        one = mixed(root, 0.5, epochs=2.0, keep_features=keep)
        assert shares(open_sources(one), grammar(one)).taken == [4, 2]
        out = train(one, tmp_path / str(keep))
        logs.append([json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()])
    assert len(logs[0]) == 2 * 3  # six rows an epoch, two a step
    assert logs[1] == pytest.approx(logs[0], rel=1e-4)
    card = json.loads((out / "card.json").read_text())
    assert [(one["episodes"], one["sentences"], one["weight"]) for one in card["data"]] == [
        (3, 4, 1.0),
        (4, 4, 0.5),
    ]


def test_a_mixture_is_a_setting(root: Path) -> None:
    plain = recipe(root / "base", root / "one")
    one = override(plain, ['data.also=[{"folder": "more", "weight": 0.1}]'])
    assert one.data.also == (Also("more", 0.1),)
    assert from_dict(json.loads(json.dumps(to_dict(one)))) == one
    for weight in ("0", "-1", "1000"):
        with pytest.raises(RecipeError, match=f"data.also has a weight of {weight}"):
            override(plain, [f'data.also=[{{"folder": "more", "weight": {weight}}}]'])


def test_each_folder_must_hold_episodes_of_the_same_bins(root: Path, tmp_path: Path) -> None:
    prepare(tmp_path / "other", [episode(0, 2)], bins=50)
    one = mixed(root, 1.0)
    with pytest.raises(ValueError, match="other was prepared with 50 bins, the recipe has grammar.bins 100"):
        open_sources(replace(one, data=replace(one.data, also=(Also(str(tmp_path / "other")),))))
    with pytest.raises(ValueError, match="the split 'test' of .*two is empty"):
        open_sources(replace(one, data=replace(one.data, also=(Also(str(root / "two"), split="test"),))))
