"""Shared by all engines: builds the prompt, consumes generated tokens one at a time, and parses the text at
the end.

In: a History, then the tokens that a model chose. Out: the tokens to run next, then a Decision.
"""

from dataclasses import dataclass, field

from uivlm.actions.action import InvalidAction
from uivlm.actions.decision import Decision
from uivlm.actions.text import ActionText
from uivlm.actions.text_prefix import action_type_is_determined
from uivlm.episodes.encode import Example, Processor, encode
from uivlm.episodes.episode import History, HistoryError
from uivlm.episodes.sentence import PromptFormat, Sentence
from uivlm.inference.constrained import ActionConstraint
from uivlm.inference.thought import thought_length, thought_limit

MAX_NEW_TOKENS = 128  # of one decision; only typed text comes near


@dataclass(slots=True)
class GenerationState:
    """One sequence during generation."""

    max_new_tokens: int
    token_ids: list[int] = field(default_factory=list)
    probability: float = 1.0  # of all chosen tokens, the end token among them
    type_probability: float = 1.0  # of the tokens that chose the action type
    stop_reason: str | None = None  # None: continues; "": ended; else why the text is not an action
    max_thought_tokens: int = 0  # 0: the format has no thoughts
    thought_ids: list[int] = field(default_factory=list)  # what comes before `token_ids`; of no probability
    thought_ended: bool = False

    @property
    def is_thinking(self) -> bool:
        return self.max_thought_tokens > 0 and not self.thought_ended


def new_state(num_free_tokens: int, max_new_tokens: int, prompt_format: PromptFormat) -> GenerationState:
    """The start of a sequence, where the model's context has room for `num_free_tokens`."""
    if prompt_format.thoughts == "none":
        return GenerationState(min(max_new_tokens, num_free_tokens))
    limit = thought_limit(num_free_tokens)
    return GenerationState(min(max_new_tokens, num_free_tokens - limit), max_thought_tokens=limit)


def build_prompt(
    history: History, prompt_format: PromptFormat, processor: Processor
) -> tuple[Sentence, Example]:
    """The prompt and its ids. HistoryError if the history has none."""
    try:
        sentence = prompt_format.prompt(history)
        example = encode(sentence, processor, with_pixels=False)
    except ValueError as error:  # a past action without text, a screen of unsupported size
        raise HistoryError(str(error)) from error
    if len(example.input_ids) >= processor.max_length:
        raise HistoryError(
            f"the prompt has {len(example.input_ids)} tokens, the model reads {processor.max_length}: "
            "use a checkpoint with a lower prompt.max_screens"
        )
    return sentence, example


def append_token(
    state: GenerationState,
    token_id: int,
    probability: float,
    processor: Processor,
    constraint: ActionConstraint | None,
) -> list[int]:
    """Append the chosen token and those that it forces.

    Returns the tokens to run next; none once it has stopped.
    """
    if state.is_thinking:
        state.thought_ids.append(token_id)
        state.thought_ended = thought_length(state.thought_ids, processor) is not None
        return [token_id]
    if token_id == processor.eos_id:
        _update_probability(state, probability, processor)
        state.stop_reason = ""
        return []
    if len(state.token_ids) >= state.max_new_tokens:
        state.stop_reason = f"no end within {state.max_new_tokens} tokens"
        return []
    _update_probability(state, probability, processor)
    state.token_ids.append(token_id)
    if not processor.is_text_token(
        token_id
    ):  # not an action any more; a placeholder could not even be embedded
        state.stop_reason = "a control token within the text"
        return []
    if constraint is None:
        return [token_id]
    forced, ended = constraint.forced_tokens(state.token_ids)
    if len(state.token_ids) + len(forced) > state.max_new_tokens:
        state.stop_reason = f"no end within {state.max_new_tokens} tokens"
        return []
    state.token_ids += forced
    if ended:  # only the end token may follow
        state.stop_reason = ""
        return []
    return [token_id, *forced]


def _update_probability(state: GenerationState, probability: float, processor: Processor) -> None:
    state.probability *= probability
    if not action_type_is_determined(processor.decode(state.token_ids)):
        state.type_probability *= probability


def finish(
    state: GenerationState,
    processor: Processor,
    action_text: ActionText,
    constraint: ActionConstraint | None,
) -> Decision:
    """Parse the generated text. Constrained decoding closes a typed text that reached the limit.

    The text of the decision is all that the model wrote; its action and its confidences are of what follows
    the thought.
    """
    text, reason = processor.decode(state.token_ids), state.stop_reason
    if reason and constraint is not None:
        closed = constraint.closed_text(state.token_ids)
        text, reason = (text, reason) if closed is None else (closed, "")
    action = InvalidAction(text, reason) if reason else action_text.parse(text)
    return Decision(
        action, processor.decode(state.thought_ids) + text, state.probability, state.type_probability
    )
