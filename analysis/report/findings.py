"""Collects the findings of all topics, and the questions without an answer, for the report and the terminal.

A sentence claims a difference only if the numbers support it: either two intervals do not overlap, or a test
has a p value below 5 % after correction for the number of pools compared.
"""

from collections.abc import Iterable
from typing import Final

from analysis.report.data import Marts
from analysis.report.model import Finding, Section, Unanswered
from analysis.report.sections import TOPICS
from analysis.report.text import intervals_unnamed

OVER_TIME: Final = Unanswered(
    question="How does it change over time?",
    lacks=(
        "All blocks are of one UTC day. `pool-collector run` for longer, or `pool-collector backfill`, "
        "brings more."
    ),
)


def findings(sections: Iterable[Section]) -> list[Finding]:
    """Return the findings (sentences that answer its question) of every section that has some, in page order.

    The words "95 % interval" are left out of the sentences. The page and the terminal say once, for all of
    them, that ranges are 95 % intervals.
    """
    return [
        Finding(
            section=section.section_id,
            question=section.question,
            sentences=tuple(intervals_unnamed(said) for said in section.findings),
        )
        for section in sections
        if section.findings
    ]


def answers(marts: Marts) -> tuple[list[Section], list[Unanswered]]:
    """Return the sections of the report that have data, and the questions that lack data for an answer.

    Questions that lack the same data become one entry.
    """
    made = [topic.section(marts) for topic in TOPICS]
    lacking = [lack for _, lacks in made for lack in lacks]
    if marts.is_of_one_day:
        lacking.append(OVER_TIME)
    questions: dict[str, list[str]] = {}
    for lack in lacking:
        asked = questions.setdefault(lack.lacks, [])
        if lack.question not in asked:
            asked.append(lack.question)
    return (
        [section for section, _ in made if section.parts],
        [Unanswered(question=" ".join(asked), lacks=lacks) for lacks, asked in questions.items()],
    )
