"""Parses the output of other tools' models as our actions, so that one scorer scores them all.

In: a model's output, its answer format, and the range of its coordinates. Out: the Action, or InvalidAction
with the reason. No text raises, none is executed as code, and no point is clipped to the screen. A text holds
one action; a text with several is invalid.
"""

from typing import assert_never

from uivlm.actions.action import Action, InvalidAction
from uivlm.actions.text import ActionText
from uivlm.evaluation.answers.autoui import parse_autoui
from uivlm.evaluation.answers.mobile_use import parse_mobile_use
from uivlm.evaluation.answers.osatlas import parse_osatlas
from uivlm.evaluation.answers.parts import CoordinateRange, InvalidAnswerError
from uivlm.evaluation.answers.seeclick import parse_seeclick, parse_showui
from uivlm.evaluation.answers.uitars import parse_uitars
from uivlm.evaluation.names import AnswerFormat

MAX_CHARS = 20_000  # of an output: keeps Python's parser quick and within its stack


def parse_answer(
    output: str, answer_format: AnswerFormat, coordinate_range: CoordinateRange, num_bins: int = 100
) -> Action | InvalidAction:
    """The action in an output of that format; InvalidAction for any other text.

    `coordinate_range` is (height, width). mobile_use: the pixels of the screenshot as the model saw it,
    (1000, 1000) for Qwen3-VL. uitars: (1000, 1000), or pixels for UI-TARS 1.5. osatlas: (1000, 1000). The
    others ignore it: seeclick, showui and autoui use fractions, ours uses `num_bins`.
    """
    if min(coordinate_range) <= 0:
        raise ValueError(f"coordinate_range: got {coordinate_range}; expected a height and a width above 0")
    if answer_format == "ours":
        return ActionText(num_bins).parse(output)
    if len(output) > MAX_CHARS:
        return InvalidAction(output, f"{len(output)} characters; the maximum is {MAX_CHARS}")
    try:
        match answer_format:
            case "seeclick":
                return parse_seeclick(output)
            case "showui":
                return parse_showui(output)
            case "autoui":
                return parse_autoui(output)
            case "mobile_use":
                return parse_mobile_use(output, coordinate_range)
            case "uitars":
                return parse_uitars(output, coordinate_range)
            case "osatlas":
                return parse_osatlas(output, coordinate_range)
            case _:
                assert_never(answer_format)
    except InvalidAnswerError as error:
        return InvalidAction(output, str(error))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):  # from json and ast
        return InvalidAction(output, f"not in the format {answer_format}")
