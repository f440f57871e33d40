"""Arguments and options that several verbs share, and how the verbs print."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from uivlm.terminal import Terminal

Backend = Literal["native", "vllm"]  # what computes the answers: this project's engine, or vLLM

stdout_console = Terminal(width=None if sys.stdout.isatty() else 120)  # room for the tables in a log

RecipeArgument = Annotated[str, typer.Argument(help="Recipe: a file *.py, or the name of one in recipes/.")]
CheckpointArgument = Annotated[Path, typer.Argument(help="Checkpoint folder.")]
AgentArgument = Annotated[
    str, typer.Argument(metavar="CKPT|URL", help="Checkpoint folder, or address of a server.")
]
DataArgument = Annotated[Path, typer.Argument(help="Prepared data: the folder of `python -m data_prep`.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PART.FIELD=VALUE", help="Value of a field of the recipe; repeatable."),
]
MaxStepsOption = Annotated[int, typer.Option(min=1, help="Maximum number of steps.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of the random numbers.")]
SplitOption = Annotated[str, typer.Option(help="Split: train, validation or test.")]
MaxEpisodesOption = Annotated[
    int | None,
    typer.Option(min=1, help="Maximum number of episodes of each subset, chosen by a hash of their ids."),
]
SubsetOption = Annotated[str | None, typer.Option(help="Subset; default: all.")]
FreeRunningOption = Annotated[
    bool, typer.Option("--free-running", help="History of predicted actions instead of recorded ones.")
]
FetchOption = Annotated[
    bool, typer.Option("--fetch", help="Download the checkpoint's base from the model hub if it is missing.")
]


def print_line(text: str) -> None:
    """A line for people: never markup, never wrapped."""
    stdout_console.print(Text(text), soft_wrap=True)
