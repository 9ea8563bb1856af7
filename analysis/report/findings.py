"""Collects the headline sentences of all topics, for the head of the report and for the terminal summary.

A sentence claims a difference only if the numbers support it: either two intervals do not overlap, or a test
has a p value below 5 % after correction for the number of pools compared.
"""

from analysis.report.data import Marts
from analysis.report.model import Finding
from analysis.report.sections import TOPICS


def findings(marts: Marts) -> list[Finding]:
    """Return the headline answer of every topic that has one, in the order of the page."""
    return [
        Finding(section=topic.section_id, question=topic.question, sentences=tuple(topic.sentences(marts)))
        for topic in TOPICS
        if topic.sentences is not None
    ]
