"""Write findings and events as an Atom feed (RFC 4287): one entry per question, one per event.

An entry keeps its id. The text and time of a question change with the build; an event stays as it happened.
"""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from analysis.report.model import Finding
from analysis.serve.events import TITLES, Event

NAMESPACE: Final = "http://www.w3.org/2005/Atom"
# A time without a build: the feed needs one.
UNKNOWN_TIME: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC).isoformat()


def atom(findings: Sequence[Finding], found: Sequence[Event], facts: Mapping[str, str]) -> bytes:
    """Return findings and events as an Atom feed (XML in UTF-8), with the events first.

    `found` are the events; `facts` are those of the build (`chain`, `dataset`, `built_at`).
    """
    source = hashlib.sha256(f"{facts.get('chain')} {facts.get('dataset')}".encode()).hexdigest()[:16]
    updated = facts.get("built_at", UNKNOWN_TIME)
    feed = ET.Element("feed", xmlns=NAMESPACE)
    ET.SubElement(feed, "id").text = f"urn:pool-measurement:{source}"
    ET.SubElement(
        feed, "title"
    ).text = f"Findings about Bitcoin mining pools ({facts.get('chain', 'unnamed')})"
    ET.SubElement(feed, "updated").text = updated
    author = ET.SubElement(feed, "author")
    ET.SubElement(author, "name").text = "pool-analysis"
    for event in found:
        happened_at = updated if event.happened_at is None else event.happened_at.isoformat()
        entry = _entry(
            feed, f"urn:pool-measurement:{source}:{event.event_id}", TITLES[event.kind], happened_at
        )
        _filled(entry, event.path, event.sentence)
    for finding in findings:
        entry = _entry(feed, f"urn:pool-measurement:{source}:{finding.section}", finding.question, updated)
        _filled(entry, f"/questions/{finding.section}", " ".join(finding.sentences))
    written: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return written


def _entry(feed: ET.Element, identity: str, title: str, updated: str) -> ET.Element:
    entry = ET.SubElement(feed, "entry")
    ET.SubElement(entry, "id").text = identity
    ET.SubElement(entry, "title").text = title
    ET.SubElement(entry, "updated").text = updated
    return entry


def _filled(entry: ET.Element, path: str, content: str) -> None:
    ET.SubElement(entry, "link", rel="alternate", href=path)
    ET.SubElement(entry, "content", type="text").text = content
