"""Defines a topic: one question of the report, and the functions that answer it from the marts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from analysis.report.data import Marts, Read
from analysis.report.model import Content, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Describes one question of the report, the rows that it reads, and the functions that answer it.

    `content` makes the figures and tables of the section from the marts. `sentences` makes its headline
    answer.
    """

    section_id: str
    title: str
    question: str
    intro: str
    content: Callable[[Marts], Content]
    sentences: Callable[[Marts], list[str]] | None = None  # None: no headline answer
    reads: Mapping[str, Read] = field(default_factory=dict)

    def section(self, marts: Marts) -> Section:
        """Make this topic's section of the page from the marts."""
        content = self.content(marts)
        return Section(
            section_id=self.section_id,
            title=self.title,
            question=self.question,
            intro=self.intro,
            parts=content.parts,
            missing=content.missing,
        )
