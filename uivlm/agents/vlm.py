"""The history-aware VLM as an agent: the whole history goes into every prompt, nothing else decides."""

from collections.abc import Sequence

from uivlm.agents.agent import Decision
from uivlm.episode import History
from uivlm.inference.predict import Answer, Predictor


class VlmAgent:
    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def reset(self) -> None:
        pass  # there is no plan to forget; what is kept changes the cost alone

    def act(self, history: History) -> Decision:
        return self.act_all([history])[0]

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        return [_decision(answer) for answer in self.predictor.predict_all(histories)]

    def rank(self, history: History, most: int) -> list[Decision]:
        return [_decision(answer) for answer in self.predictor.rank(history, most)]

    def forget(self) -> None:
        self.predictor.forget()


def _decision(answer: Answer) -> Decision:
    return Decision(answer.action, answer.words, answer.chance, answer.kind)
