"""What several verbs of the command have in common: types of their arguments, and how they speak to people."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

screen = Console(width=None if sys.stdout.isatty() else 120)  # room for the tables in a log

RecipeName = Annotated[str, typer.Argument(help="A recipe's file, or its name in recipes/.")]
Checkpoint = Annotated[Path, typer.Argument(help="A checkpoint folder.")]
AgentName = Annotated[
    str, typer.Argument(metavar="CKPT|URL", help="A checkpoint folder, or a server's address.")
]
DataFolder = Annotated[Path, typer.Argument(help="Prepared data: a folder that `python -m data_prep` wrote.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PART.FIELD=VALUE", help="Change a field of the recipe; may be repeated."),
]
Limit = Annotated[int, typer.Option(min=1, help="Most actions of a run.")]
Seed = Annotated[int, typer.Option(min=0, help="Another seed, other random numbers.")]
Split = Annotated[str, typer.Option(help="Which episodes: train, validation or test.")]
Episodes = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many episodes.")]
Subset = Annotated[str | None, typer.Option(help="Only this subset.")]
Free = Annotated[
    bool, typer.Option("--free", help="The past is what the agent did itself, not what was recorded.")
]


def say(words: str) -> None:
    """A line for people: never mark-up, never broken."""
    screen.print(Text(words), soft_wrap=True)
