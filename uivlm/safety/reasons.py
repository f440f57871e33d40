"""Why a person must confirm a gesture: what it would do and a policy in, reasons out."""

from dataclasses import dataclass

from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture, PressKey, TypeText
from uivlm.safety.always import Exemption
from uivlm.safety.policy import Policy
from uivlm.safety.secrets import REFERENCE_PATTERN, Secrets
from uivlm.safety.sensitive import sensitive_labels
from uivlm.safety.touched import Touched, gesture_kind, is_scroll


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    exemption: Exemption | None = None  # what a person may allow for good; None: it is asked for each time


def gesture_reasons(
    policy: Policy, secrets: Secrets, app: str, gesture: Gesture, touched: Touched | None
) -> tuple[Reason, ...]:
    """Reasons that the person has not allowed for good. `touched` is None if the elements are unknown."""
    kind = gesture_kind(gesture)
    known_app = app and not (isinstance(gesture, TypeText) and REFERENCE_PATTERN.search(gesture.text))
    by_kind = Exemption(app, gesture=kind) if known_app else None
    reasons = [Reason(text, by_kind) for text in policy.confirmation_reasons(app)]
    if policy.profile == "strict" and not (is_scroll(gesture) or gesture == PressKey("back")):
        reasons.append(Reason(f"the strict profile confirms each {kind.replace('_', ' ')}", by_kind))
    if policy.confirm_labels:
        reasons += _label_reasons(policy, secrets, app, touched, by_kind)
    return tuple(reason for reason in reasons if reason.exemption not in policy.always)


def confidence_reasons(policy: Policy, decision: Decision | None) -> tuple[Reason, ...]:
    if decision is None:
        return ()
    confidence = decision.action_type_confidence
    confidence = decision.confidence if confidence is None else confidence
    if confidence is None or confidence >= policy.min_confidence:
        return ()
    return (Reason(f"the confidence is {confidence:.2f}, below {policy.min_confidence:.2f}"),)


def _label_reasons(
    policy: Policy, secrets: Secrets, app: str, touched: Touched | None, by_kind: Exemption | None
) -> list[Reason]:
    if touched is None:
        touched = Touched(unknown=True)
    reasons = [
        Reason(
            f"the touched element says {secrets.mask(label)!r}",
            Exemption(app, label=label) if app and not secrets.contains_secret(label) else None,
        )
        for label in sensitive_labels(touched.labels, policy.confirm_labels)
    ]
    if touched.unknown and policy.unknown == "ask":
        reasons.append(Reason("the touched element is unknown", by_kind))
    return reasons
