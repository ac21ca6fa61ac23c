"""What can be wrong in a partition, as the auditor reports it."""

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True, order=True)
class Defect:
    """One thing that is wrong.

    Attributes:
        severity: "error" (a message is lost, stuck or would be handled twice) or "warning" (a
            leftover that the scripts skip).
        kind: One word or two, the same for all of its kind.
        key: The Redis key it is in.
        id: The message, or the field, it is about.
        text: What is wrong, as a sentence.
    """

    severity: str
    kind: str
    key: str
    id: str
    text: str
