"""What the tests of the command line share: a scripted agent, the type of a call, the check of an error."""

import time
from collections.abc import Callable

from uivlm.actions.action import Finish, Press
from uivlm.actions.decision import Decision
from uivlm.episodes.episode import History

GOAL = "Open the Clock app"


class Scripted:
    """Presses home `presses` times, each after `seconds`, then finishes."""

    def __init__(self, finish: Finish, presses: int = 1, seconds: float = 0.0) -> None:
        self.finish, self.presses, self.seconds = finish, presses, seconds

    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        time.sleep(self.seconds)
        if len(history.steps) < self.presses:
            return Decision(Press("home"), "press home")
        return Decision(self.finish, self.finish.status)


Uivlm = Callable[..., tuple[int, str, str]]


def refused(answer: tuple[int, str, str]) -> str:
    """The one sentence on stderr."""
    status, out, err = answer
    assert status == 2
    assert out == ""
    assert "Traceback" not in err
    assert err.count("\n") == 1, err
    assert err.startswith("uivlm: ")
    return err
