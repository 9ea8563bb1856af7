"""A topic: one question of the report, with all that is needed to answer it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from analysis.report.data import Marts, Read
from analysis.report.model import Content, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One question of the report: the rows it reads, and its answer in sentences, figures and tables."""

    section_id: str
    title: str
    question: str
    intro: str
    content: Callable[[Marts], Content]
    sentences: Callable[[Marts], list[str]] | None = None  # None: no headline answer
    reads: Mapping[str, Read] = field(default_factory=dict)

    def section(self, marts: Marts) -> Section:
        """Make the section of the page."""
        content = self.content(marts)
        return Section(
            section_id=self.section_id,
            title=self.title,
            question=self.question,
            intro=self.intro,
            parts=content.parts,
            missing=content.missing,
        )
