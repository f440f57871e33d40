"""The history-aware VLM as an agent: the whole history goes into every prompt, nothing else decides."""

from collections.abc import Sequence

from uivlm.agents.agent import Decision
from uivlm.episode import History
from uivlm.inference.predict import Predictor


class VlmAgent:
    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def reset(self) -> None:
        pass  # there is no plan to forget; what is kept changes the cost alone

    def act(self, history: History) -> Decision:
        return self.act_all([history])[0]

    def act_all(self, histories: Sequence[History]) -> list[Decision]:
        return [
            Decision(action, words, confidence)
            for words, action, confidence in self.predictor.predict_all(histories)
        ]

    def forget(self) -> None:
        self.predictor.forget()
