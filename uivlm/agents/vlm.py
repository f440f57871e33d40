"""The history-aware VLM as an agent: the whole history goes into every prompt, nothing else decides."""

from collections.abc import Sequence

from uivlm.agents.agent import Decision
from uivlm.episode import History
from uivlm.inference.answer import Answer, Engine
from uivlm.inference.predict import Predictor


class VlmAgent:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def reset(self) -> None:
        pass  # there is no plan to forget; what is kept changes the cost alone

    def act(self, history: History) -> Decision:
        return self.act_all([history])[0]

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        return [_decision(answer) for answer in self.engine.predict_all(histories)]

    def forget(self) -> None:
        self.engine.forget()


class RankingVlmAgent(VlmAgent):
    """On the project's own engine, which can tell what else might have been done."""

    engine: Predictor

    def __init__(self, engine: Predictor) -> None:
        super().__init__(engine)

    def rank(self, history: History, most: int) -> list[Decision]:
        return [_decision(answer) for answer in self.engine.rank(history, most)]


def _decision(answer: Answer) -> Decision:
    return Decision(answer.action, answer.words, answer.chance, answer.kind)
