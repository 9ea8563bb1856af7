"""Collect the report's findings (sentences) for the pages, the API and the feed, once per build."""

from pathlib import Path

from analysis.report.data import Marts, read_open
from analysis.report.model import Finding
from analysis.report.sections import READS, TOPICS
from analysis.report.text import intervals_unnamed
from analysis.serve.results import Reader


def report_marts(reader: Reader, database: Path) -> Marts:
    """Return the rows that the report shows, read once per build. Raises ReportError as the report does."""
    return reader.cached("report", lambda each: read_open(each.cursor, database, READS))


def found_answers(reader: Reader, database: Path) -> list[Finding]:
    """Return the findings of every topic of the report that has some, in the order of the report."""
    marts = report_marts(reader, database)
    return reader.cached("findings", lambda _each: _findings(marts))


def _findings(marts: Marts) -> list[Finding]:
    found = []
    for topic in TOPICS:
        sentences = topic.sentences(marts) if topic.sentences else []
        if sentences:
            said = tuple(intervals_unnamed(sentence) for sentence in sentences)
            found.append(Finding(section=topic.section_id, question=topic.question, sentences=said))
    return found
