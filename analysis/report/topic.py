"""Defines a topic: one question of the report, and the functions that answer it from the marts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.report.data import Marts, Read
from analysis.report.model import DefinitionList, Figure, Section, SectionContent, Table, Unanswered
from analysis.report.text import NO_ANSWER_IN_BLOCKS, NO_BLOCKS, intervals_named_once


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Describes one question of the report, the rows that it reads, and the functions that answer it.

    `content` makes the figures and tables of the section from the marts. `sentences` returns its findings;
    without data the list is empty.
    """

    section_id: str
    title: str
    question: str
    intro: str
    content: Callable[[Marts], SectionContent]
    sentences: Callable[[Marts], list[str]] | None = None
    reads: Mapping[str, Read] = field(default_factory=dict)

    def section(self, marts: Marts) -> tuple[Section, list[Unanswered]]:
        """Return this topic's section of the page, and the list of the questions that it cannot answer.

        A section without a figure or a table has no place on the page, so its question is in the list.
        """
        content = self.content(marts)
        parts = _drawn(content.parts)
        section = Section(
            section_id=self.section_id,
            title=self.title,
            question=self.question,
            intro=self.intro,
            parts=parts,
            findings=intervals_named_once(self.sentences(marts)) if self.sentences else (),
        )
        lacking = [
            Unanswered(question=self.question, lacks=lack) if isinstance(lack, str) else lack
            for lack in content.missing
        ]
        if not parts and not any(lack.question == self.question for lack in lacking):
            lacks = NO_ANSWER_IN_BLOCKS if marts.window["n_blocks"] else NO_BLOCKS
            lacking.insert(0, Unanswered(question=self.question, lacks=lacks))
        return section, lacking


def _drawn(
    parts: Sequence[Figure | Table | DefinitionList],
) -> list[Figure | Table | DefinitionList]:
    """Return the parts of a section without the figures, and panels of figures, that have nothing drawn."""
    found: list[Figure | Table | DefinitionList] = []
    for part in parts:
        if not isinstance(part, Figure):
            found.append(part)
        elif panels := [panel for panel in part.panels if panel.wide]:
            found.append(part if len(panels) == len(part.panels) else replace(part, panels=panels))
    return found
