"""Agents for the tests of serving: small, and one that can be held up."""

import threading
from collections.abc import Sequence

from uivlm.actions.language import Language
from uivlm.agents.agent import Decision
from uivlm.episode import History


class Held:
    """Answers side by side, but only while it is let; a goal "bad" is an error. Says `tap at LENGTH 7`."""

    def __init__(self) -> None:
        self.let = threading.Event()
        self.begun = threading.Event()
        self.asked: list[list[str]] = []

    def reset(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return self.act_all([history])[0]

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        self.asked.append([one.goal for one in histories])
        self.begun.set()
        assert self.let.wait(20)
        if any(one.goal == "bad" for one in histories):
            raise RuntimeError("bad")
        words = [f"tap at {len(one.steps)} 7" for one in histories]
        return [Decision(Language().parse(one), one, 0.5) for one in words]
