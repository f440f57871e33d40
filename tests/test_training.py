"""Training: batches, their order, the loss in every layout, what changes, what is written, what is refused."""

import io
import json
import shlex
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bridges import END, PAD, base, config, episode, prepare, qwen_base, qwen_recipe, recipe, tokenizer
from rich.console import Console
from safetensors.torch import load_file

from uivlm.actions.language import kind
from uivlm.inference.load import load
from uivlm.inference.predict import Predictor
from uivlm.models import tune
from uivlm.models.llama_vit import Reader
from uivlm.models.lora import ADAPTERS
from uivlm.models.model import build, grammar
from uivlm.recipe import Lora, Recipe, RecipeError, Train
from uivlm.sentences.encode import IGNORE, encode
from uivlm.training import sentence_trainer, trainer
from uivlm.training.checkpoint import base_checkpoint, files
from uivlm.training.collator import ASIDE, Collator, Row, Windows, order
from uivlm.training.meter import Meter, Read
from uivlm.training.progress import newest_state
from uivlm.training.readers import how, readers
from uivlm.training.trainer import print_row, train
from uivlm.training.zero import deepspeed

FIRST = tokenizer().get_vocab_size()
EPISODES = [episode(seed, num_steps) for seed, num_steps in enumerate((1, 6, 2, 3, 5, 1, 2, 4))]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("training")
    base(made / "base")
    qwen_base(made / "qwen")
    prepare(made / "data", EPISODES)
    return made


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def small(root: Path, **part: Any) -> Recipe:
    return recipe(root / "base", root / "data", **part)


def windows(screens: int = 4, context: int = 512) -> Windows:
    spoken = grammar(recipe(Path(), Path(), screens=screens))
    return Windows(
        EPISODES, [len(e.steps) for e in EPISODES], spoken, Reader(tokenizer(), config(context=context))
    )


COLLATE = Collator(FIRST + PAD, config().picture_id)

# -- rows and batches -------------------------------------------------------------------------------------------


def test_rows_are_all_windows_of_all_episodes() -> None:
    rows = windows()
    assert len(rows) == 8 + 2  # two episodes are longer than the four screens of a window
    assert rows.screens == [1, 4, 4, 2, 3, 4, 3, 1, 2, 4]
    assert [len(rows[i].tokens) for i in range(len(rows))] == rows.screens
    ends = sum(int((rows[i].labels == FIRST + END).sum()) for i in range(len(rows)))
    assert ends == sum(len(e.steps) for e in EPISODES)


def test_a_batch_is_its_rows_and_padding() -> None:
    rows = [windows()[i] for i in (0, 4, 1)]
    batch = COLLATE(rows)
    longest = max(len(row.input_ids) for row in rows)
    assert batch["input_ids"].shape == (3, longest)
    for i, row in enumerate(rows):
        n = len(row.input_ids)
        assert batch["input_ids"][i].tolist() == row.input_ids.tolist() + [FIRST + PAD] * (longest - n)
        assert batch["labels"][i].tolist() == row.labels.tolist() + [IGNORE] * (longest - n)
        assert batch["attention_mask"][i].tolist() == [True] * n + [False] * (longest - n)
    assert np.array_equal(
        batch["pixels"].numpy(), np.stack([screen for row in rows for screen in row.pixels or ()])
    )


def test_the_mask_does_not_come_from_ids() -> None:
    """A model may pad with a token that its sentences hold too."""
    row = windows()[0]
    batch = Collator(int(row.input_ids[-2]), config().picture_id)([row])
    assert batch["attention_mask"].all()


@pytest.mark.parametrize(
    ("take", "numbers"), [(1, "8 places .* 2 screens, 1 screens are given"), (0, "8 places .* 0 ")]
)
def test_a_row_without_its_screens_is_refused(take: int, numbers: str) -> None:
    row = windows()[3]
    assert row.pixels is not None
    with pytest.raises(ValueError, match=numbers):
        COLLATE([replace(row, pixels=row.pixels[:take])])


def test_a_sentence_beyond_the_context_is_refused() -> None:
    rows = windows(context=60)
    with pytest.raises(ValueError, match=r"'e1' has \d+ tokens, the model reads 60: lower grammar.screens"):
        rows[1]


def test_order_is_a_permutation_of_seed_and_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 9, 203).tolist()
    orders = [order(range(len(lengths)), lengths, 8, seed, epoch) for seed in (0, 1) for epoch in (0, 1, 2)]
    assert all(sorted(o) == list(range(203)) for o in orders)
    assert len({tuple(o) for o in orders}) == 6
    assert orders[0] == order(range(len(lengths)), lengths, 8, 0, 0)
    steps = [[lengths[i] for i in orders[0][a : a + 8]] for a in range(0, 200, 8)]
    assert np.mean([max(s) - min(s) for s in steps]) < 1.5, "rows of a step have like lengths"
    assert sorted(max(s) for s in steps) != [max(s) for s in steps], "the steps themselves are shuffled"


# -- the loss ---------------------------------------------------------------------------------------------------


def history(root: Path, out: Path, **part: Any) -> list[dict[str, float]]:
    train(small(root, **part), out)
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_every_layout_of_a_step_gives_the_same_loss_and_gradient(root: Path, tmp_path: Path) -> None:
    """Batch 8, 4 x 2 and 1 x 8: rows of very different numbers of trained tokens."""
    runs = [
        history(root, tmp_path / f"{b}x{a}", batch=b, accumulate=a, epochs=1.0)
        for b, a in ((8, 1), (4, 2), (1, 8))
    ]
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in run] for run in runs])
        assert values.shape == (3, 2), "ten rows: one whole step and a short one"
        assert np.allclose(values, values[0], rtol=1e-4), (name, values)


def test_the_logged_loss_is_the_mean_over_trained_tokens(root: Path, tmp_path: Path) -> None:
    """By hand: the base's own log-probabilities of every trained token of all rows."""
    line = history(root, tmp_path / "out", batch=16, epochs=1.0)[0]
    built = build(small(root))
    nats: dict[str, list[float]] = defaultdict(list)  # of each kind of action
    spoken = grammar(small(root))
    tokens = 0
    for one in EPISODES:
        for window in spoken.windows(one):
            example = encode(spoken.sentence(window), built.reader)
            tokens += len(example.input_ids)
            with torch.inference_mode():
                logits = built.module(
                    torch.tensor(example.input_ids)[None], torch.tensor(np.stack(example.pixels))
                ).logits[0]
            actions = [kind(step.action).replace(" ", "_") for step in window.steps[window.first_trained :]]
            for i in np.flatnonzero(example.labels != IGNORE):
                nats[actions[0]].append(-float(logits[i - 1].log_softmax(-1)[example.labels[i]]))
                if example.labels[i] == built.reader.end:
                    del actions[0]
    assert line["loss"] == pytest.approx(np.mean(np.concatenate(list(nats.values()))), rel=1e-4)
    means = {f"loss_{name}": float(np.mean(values)) for name, values in nats.items()}
    assert len(means) > 3
    assert {name for name in line if name.startswith("loss_")} == {*means, "loss_mean_of_kinds"}
    for name, mean in means.items():
        assert line[name] == pytest.approx(mean, rel=1e-4), name
    assert line["loss_mean_of_kinds"] == pytest.approx(np.mean(list(means.values())), rel=1e-4)


def test_the_log_tells_how_fast_it_went(root: Path, tmp_path: Path) -> None:
    """Counts by hand, of one epoch in two steps; a rate times its time is a count."""
    lines = history(root, tmp_path / "out", batch=8, epochs=1.0)
    assert len(lines) == 2
    for line in lines:
        assert 0 <= line["wait"] <= 1
        assert line["memory_gb"] > 0.01
        assert 0 < line["mfu"] < 1
        assert line["tokens_s"] > line["screens_s"] > line["episodes_s"] >= 0
    rows = windows()
    one = Meter(lambda sums: sums, 50.0)
    one.since -= 2.0
    for i in range(len(rows)):
        row = rows[i]
        one.add(
            torch.ones(len(row.kinds)),
            torch.from_numpy(row.kinds),
            Read(len(row.input_ids), len(row.tokens), int(row.begins), 5.0),
        )
    told = one.told()
    assert told["operations_s"] == pytest.approx(5 * len(rows) / 2, rel=0.05)
    assert told["mfu"] == told["operations_s"] / 50
    assert told["episodes_s"] == pytest.approx(len(EPISODES) / 2, rel=0.05)
    assert told["screens_s"] == pytest.approx(sum(rows.screens) / 2, rel=0.05)
    assert {value for name, value in told.items() if name.startswith("loss_")} == {1.0}
    one.since -= 1.0
    assert one.told()["screens_s"] == 0, "each step is counted alone"


# -- what a run changes and writes ------------------------------------------------------------------------------


def watch(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a run begins with: a copy of the base's weights, and the model that is trained."""
    made: list[Any] = []
    begin = tune.begin

    def watched(built: Any, seed: int) -> Any:
        made.append({k: v.clone() for k, v in built.module.state_dict().items()})
        made.append(begin(built, seed))
        return made[-1]

    monkeypatch.setattr(tune, "begin", watched)
    return made


def test_the_file_set_is_exact_and_the_frozen_weights_are_untouched(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = watch(monkeypatch)
    out = train(small(root, epochs=1.0), tmp_path / "runs" / "out")
    assert {f.name for f in out.iterdir()} == set(files(small(root))) == {
        "adapter_model.safetensors", "adapter_config.json", "projector.safetensors", "recipe.json", "card.json",
        "log.jsonl", "curves.html",
    }  # fmt: skip
    assert [f.name for f in out.parent.iterdir()] == ["out"], "the run's own state is gone"
    before, model = made
    after = {
        k.replace(".base_layer", ""): v
        for k, v in model.base_model.model.state_dict().items()
        if "lora_" not in k
    }
    assert after.keys() == before.keys()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert changed == {"projection.weight", "projection.bias"}
    assert all(float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTERS).items() if "lora_B" in k)


def test_the_card_tells_the_run(root: Path, tmp_path: Path) -> None:
    out = train(small(root, epochs=1.0, seed=7), tmp_path / "out")
    card = json.loads((out / "card.json").read_text())
    assert card["data"] == [{
        "fingerprint": "of 24 rows", "split": "train", "weight": 1.0, "episodes": 8, "steps": 24, "sentences": 10,
    }]  # fmt: skip
    width = {
        "q": (32, 32),
        "k": (32, 32),
        "v": (32, 32),
        "o": (32, 32),
        "gate": (32, 48),
        "up": (32, 48),
        "down": (48, 32),
    }
    assert card["trainable_parameters"] == {
        "adapters": 2 * sum(4 * (a + b) for a, b in width.values()), "projection": 24 * 32 + 32,
    }  # fmt: skip
    assert card["seed"] == 7
    assert card["grammar"] == {"bins": 100, "screens": 4, "before": 3}
    assert set(card["versions"]) == {"uivlm", "torch", "transformers", "peft"}
    assert card["command"].split()[0] == shlex.quote(sys.argv[0])
    assert card["processes"] == 1


def test_the_same_seed_gives_the_same_weights(root: Path, tmp_path: Path) -> None:
    runs = [
        train(small(root, epochs=1.0, seed=seed), tmp_path / name)
        for name, seed in zip("abc", (1, 1, 2), strict=True)
    ]
    a, b, c = (load_file(run / ADAPTERS) for run in runs)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not all(torch.equal(a[name], c[name]) for name in a)


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Callable[..., None]:
    def on_log(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            raise StoppedError

    return on_log


def test_a_resumed_run_is_the_uninterrupted_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = small(root, epochs=2.0)
    whole = train(one, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.progress.Progress.on_step_end", stop_at(7), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    state = tmp_path / "cut.state"
    newest = newest_state(state)
    assert newest is not None
    (newest / "optimizer.pt").write_bytes(b"torn")
    older = newest_state(state)
    assert older is not None
    assert older != newest, "a damaged state is passed over"
    with pytest.raises(ValueError, match="continue it with --resume"):
        train(one, tmp_path / "cut")
    with pytest.raises(ValueError, match="another recipe"):
        train(replace(one, name="other"), tmp_path / "cut", resume=True)
    cut = train(one, tmp_path / "cut", resume=True)
    for name in ("adapter_model.safetensors", "projector.safetensors"):
        a, b = load_file(whole / name), load_file(cut / name)
        assert all(torch.equal(a[key], b[key]) for key in a), name
    logs = [
        [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in (whole, cut)
    ]
    assert [line["step"] for line in logs[1]] == list(range(1, 11))
    assert [line["loss"] for line in logs[1]] == pytest.approx([line["loss"] for line in logs[0]], rel=1e-6)


def test_the_untuned_base_is_a_checkpoint(root: Path, tmp_path: Path) -> None:
    out = base_checkpoint(small(root), tmp_path / "base")
    assert {f.name for f in out.iterdir()} == set(files(small(root)))
    assert all(not value.any() for name, value in load_file(out / ADAPTERS).items() if "lora_B" in name)
    with pytest.raises(ValueError, match="exists already"):
        base_checkpoint(small(root), tmp_path / "base")


# -- what is refused --------------------------------------------------------------------------------------------


def test_other_bins_are_refused_with_both_numbers(root: Path, tmp_path: Path) -> None:
    data = prepare(tmp_path / "data", [episode(0, 2)], bins=50)
    with pytest.raises(ValueError, match=r"prepared with 50 bins, the recipe has grammar.bins 100"):
        train(recipe(root / "base", data), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "out.state").exists(), "a refused run leaves nothing that has to be removed"


@pytest.mark.parametrize(
    ("split", "says"), [("test", "'test' of .* is empty"), ("trian", "no split 'trian'")]
)
def test_a_split_without_episodes_is_refused(root: Path, tmp_path: Path, split: str, says: str) -> None:
    one = small(root)
    with pytest.raises(ValueError, match=says):
        train(replace(one, data=replace(one.data, split=split)), tmp_path / "out")


def test_no_data_and_no_base(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder"):
        train(recipe(root / "base", tmp_path / "nothing"), tmp_path / "out")
    with pytest.raises(ValueError, match="no folder .* bridge base"):
        train(recipe(tmp_path / "nothing", root / "data"), tmp_path / "out")


def test_an_existing_folder_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exists already"):
        train(small(root), tmp_path)
    with pytest.raises(ValueError, match="no unfinished run"):
        train(small(root), tmp_path / "out", resume=True)


# -- the rest ---------------------------------------------------------------------------------------------------


def test_the_first_row_is_printed_with_trained_words_green() -> None:
    rows = windows()
    file = io.StringIO()
    print_row(
        rows[3], rows.reader, Console(file=file, force_terminal=True, color_system="standard", width=200)
    )
    text = file.getvalue()
    green = "".join(part.partition("\x1b[0m")[0] for part in text.split("\x1b[32m")[1:])
    said = [grammar(recipe(Path(), Path())).language.say(step.action) for step in EPISODES[2].steps]
    assert [part for part in green.replace("\n", "").split("■") if part] == [
        s.replace("\n", "") for s in said
    ]
    assert text.count("[4 visual tokens]") == 2


def test_zero_stages() -> None:
    assert deepspeed(0) is None
    for stage in (1, 2, 3):
        told = deepspeed(stage)
        assert told is not None
        assert told["zero_optimization"]["stage"] == stage
    away = deepspeed(3, offload=True)
    assert away is not None
    assert {name for name in away["zero_optimization"] if "offload" in name} == {
        "offload_optimizer",
        "offload_param",
    }
    with pytest.raises(RecipeError, match="train.offload needs DeepSpeed"):
        Train(offload=True)


def test_a_row_may_have_no_screen() -> None:
    ids = np.array([1, 2, 3])
    batch = COLLATE([Row(ids, ids, np.zeros(2, np.int64), (), pixels=())])
    assert set(batch) == {"input_ids", "labels", "attention_mask", *ASIDE}


def test_one_episode_is_learned_by_heart(tmp_path: Path) -> None:
    """Trained, saved, loaded and asked: the recorded actions' words, step by step, beyond one window too."""
    of = episode(0, 7)
    # The head is frozen: with rows of spread 0.2 no token could get more than half of the probability.
    one = recipe(base(tmp_path / "base", initializer_range=0.5), prepare(tmp_path / "data", [of]))
    one = replace(one, model=replace(one.model, lora=Lora(16, 16, 0.0)))
    one = replace(one, train=replace(one.train, epochs=150.0, keep_features=True))
    loaded = load(train(one, tmp_path / "out"))
    said = [Predictor(loaded).predict(of.history(t)) for t in range(7)]
    words = [loaded.grammar.language.say(step.action) for step in of.steps]
    assert [s[0] for s in said] == words
    assert min(s[2] for s in said) > 0.5, "sure of every answer"
    assert [s[1] for s in said] == [loaded.grammar.language.parse(w) for w in words]
    untuned = Predictor(load(base_checkpoint(one, tmp_path / "untuned")), limit=8)
    assert untuned.predict(of.history(0))[0] != words[0]


# -- Qwen-VL ------------------------------------------------------------------------------------------------------


def qwen(root: Path, part: dict[str, Any], **train_part: Any) -> Recipe:
    return qwen_recipe(root / "qwen", root / "data", {"epochs": 1.0, **train_part}, **part)


FULL: dict[str, Any] = {"lora": None}


def test_adapters_of_qwenvl(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = watch(monkeypatch)
    one = qwen(root, {})
    out = train(one, tmp_path / "out")
    assert {f.name for f in out.iterdir()} == set(files(one)) == {
        "adapter_model.safetensors", "adapter_config.json", "recipe.json", "card.json", "log.jsonl", "curves.html",
    }  # fmt: skip
    before, model = made
    after = {k.replace(".base_layer", ""): v for k, v in model.base_model.model.state_dict().items()}
    assert all(torch.equal(after[name], value) for name, value in before.items()), "the base is frozen"
    assert all(float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTERS).items() if "lora_B" in k)
    told = json.loads((out / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == str(root / "qwen")
    widths = ((128, 384), (128, 128), (128, 32), (128, 32), (32, 128))
    card = json.loads((out / "card.json").read_text())
    adapters = 2 * sum(4 * (a + b) for a, b in widths)
    assert card["trainable_parameters"] == {"adapters": adapters}
    assert card["parameters"] == adapters + sum(value.numel() for value in before.values())


def test_full_fine_tuning_of_qwenvl(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoint is a base: a later run begins with it."""
    made = watch(monkeypatch)
    one = qwen(root, FULL)
    out = train(one, tmp_path / "out")
    assert {f.name for f in out.iterdir()} == set(files(one)) == {
        "model", "recipe.json", "card.json", "log.jsonl", "curves.html",
    }  # fmt: skip
    before, model = made
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {name for name, value in model.named_parameters() if value.requires_grad}
    card = json.loads((out / "card.json").read_text())
    assert card["trainable_parameters"] == {"weights": sum(before[name].numel() for name in changed)}
    later = build(qwen_recipe(out / "model", root / "data")).module.state_dict()
    assert all(torch.equal(value, later[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("how", ["nf4", "int8"])
def test_quantised_qwenvl_trains_alike(root: Path, tmp_path: Path, how: str) -> None:
    """Adapters on rounded weights: a loss near that of the whole weights, and a checkpoint that acts."""
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed")
    runs = [train(qwen(root, {"quantise": q}), tmp_path / str(q)) for q in (None, how)]
    plain, rounded = ([json.loads(x) for x in (run / "log.jsonl").read_text().splitlines()] for run in runs)
    assert [x["loss"] for x in rounded] == pytest.approx([x["loss"] for x in plain], rel=0.1)
    assert [x["loss"] for x in rounded] != pytest.approx([x["loss"] for x in plain], rel=1e-5)
    assert all(float(v.abs().max()) > 0 for k, v in load_file(runs[1] / ADAPTERS).items() if "lora_B" in k)
    cards = [json.loads((run / "card.json").read_text()) for run in runs]
    assert cards[0]["parameters"] == cards[1]["parameters"]
    said = Predictor(load(runs[1]), limit=4).predict(EPISODES[1].history(3))
    assert 0 < said[2] <= 1


@pytest.mark.parametrize("part", [{}, FULL], ids=["lora", "full"])
def test_a_resumed_run_of_qwenvl_is_the_uninterrupted_one(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: dict[str, Any]
) -> None:
    one = qwen(root, part)
    whole = train(one, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr("uivlm.training.progress.Progress.on_step_end", stop_at(3), raising=False)
        with pytest.raises(StoppedError):
            train(one, tmp_path / "cut")
    assert newest_state(tmp_path / "cut.state") is not None
    cut = train(one, tmp_path / "cut", resume=True)
    name = "model/model.safetensors" if part else "adapter_model.safetensors"
    a, b = load_file(whole / name), load_file(cut / name)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert len((cut / "log.jsonl").read_text().splitlines()) == 5


def test_every_layout_of_qwenvl_gives_the_same_loss_and_gradient(root: Path, tmp_path: Path) -> None:
    logs = []
    for b, a in ((4, 1), (1, 4)):
        out = train(qwen(root, {}, batch=b, accumulate=a), tmp_path / f"{b}x{a}")
        logs.append([json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()])
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in log] for log in logs])
        assert values.shape == (2, 3)
        assert np.allclose(values, values[0], rtol=1e-3), (name, values)


def test_readers_beside_the_run_change_nothing(root: Path, tmp_path: Path) -> None:
    outs = [train(small(root, readers=number, epochs=2.0), tmp_path / str(number)) for number in (0, 2)]
    assert (outs[0] / "adapter_model.safetensors").read_bytes() == (
        outs[1] / "adapter_model.safetensors"
    ).read_bytes()


def test_readers_are_no_forks_of_the_run() -> None:
    """A fork among a training process's threads may hang."""
    assert how(1)["multiprocessing_context"] == "forkserver"
    assert how(0) == {"num_workers": 0}
    assert readers(0) == 0
    assert 1 <= readers(None) <= 8


def test_computing_blocks_again_changes_no_gradient(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Blocks that forget what they computed, as the model has it, and blocks that keep it."""
    arguments = sentence_trainer.arguments
    asked = []

    def kept(recipe: Recipe, state: Path, workers: int, recompute: bool) -> Any:
        asked.append(recompute)
        return arguments(recipe, state, workers, False)

    outs = [train(qwen(root, {}), tmp_path / "again")]
    monkeypatch.setattr(sentence_trainer, "arguments", kept)
    outs.append(train(qwen(root, {}), tmp_path / "kept"))
    assert asked == [True]
    logs = [[json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()] for out in outs]
    for name in ("loss", "grad_norm"):
        values = np.array([[line[name] for line in log] for log in logs])
        assert np.allclose(values[0], values[1], rtol=1e-5), (name, values)
    for out in outs:
        assert all(float(v.abs().max()) > 0 for k, v in load_file(out / ADAPTERS).items() if "lora_B" in k)


def test_adapters_of_a_bfloat16_model_are_float32(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bfloat16 would lose most of an update: 8 bits of a weight, and updates are a thousandth of it."""
    made = watch(monkeypatch)
    out = train(qwen(root, {}, precision="bfloat16"), tmp_path / "out")
    model = made[1]
    assert {v.dtype for v in model.parameters() if not v.requires_grad} == {torch.bfloat16}
    assert {v.dtype for v in model.parameters() if v.requires_grad} == {torch.float32}
    assert {v.dtype for v in load_file(out / ADAPTERS).values()} == {torch.float32}


def test_qwenvl_learns_an_episode_by_heart(tmp_path: Path) -> None:
    of = episode(6, 4)
    folder, data = qwen_base(tmp_path / "base"), prepare(tmp_path / "data", [of])
    one = qwen_recipe(folder, data, {"epochs": 30.0}, lora=Lora(16, 16, 0.0))
    loaded = load(train(one, tmp_path / "out"))
    predictor = Predictor(loaded)
    said = [predictor.predict(of.history(t)) for t in range(4)]
    assert [s[0] for s in said] == [loaded.grammar.language.say(step.action) for step in of.steps]
    assert [s[1] for s in said] == [loaded.grammar.language.parse(s[0]) for s in said]


def test_only_the_first_process_makes_the_folder(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Else a second process that is faster looks to the first like an unfinished run."""
    state = tmp_path / "out.state"
    monkeypatch.setenv("LOCAL_RANK", "1")
    second = threading.Thread(target=trainer._make, args=(state, small(root)), daemon=True)
    second.start()
    second.join(0.5)
    assert second.is_alive()
    assert not state.exists()
    monkeypatch.setenv("LOCAL_RANK", "0")
    trainer._make(state, small(root))
    second.join(5)
    assert not second.is_alive()
