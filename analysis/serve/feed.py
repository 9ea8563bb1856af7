"""Writes the findings as an Atom feed (RFC 4287): one entry per question.

An entry keeps its id, and its text and time change with the build that changed them.
"""

import datetime as dt
import hashlib
from collections.abc import Mapping, Sequence
from typing import Final
from xml.etree import ElementTree as ET

from analysis.report.model import Finding

NAMESPACE: Final = "http://www.w3.org/2005/Atom"
# A time without a build: the feed needs one.
UNKNOWN_TIME: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC).isoformat()


def atom(findings: Sequence[Finding], facts: Mapping[str, str]) -> bytes:
    """Return the feed as XML; `facts` are those of the build (`chain`, `dataset`, `built_at`)."""
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
    for finding in findings:
        entry = ET.SubElement(feed, "entry")
        ET.SubElement(entry, "id").text = f"urn:pool-measurement:{source}:{finding.section}"
        ET.SubElement(entry, "title").text = finding.question
        ET.SubElement(entry, "updated").text = updated
        ET.SubElement(entry, "link", rel="alternate", href=f"/questions/{finding.section}")
        ET.SubElement(entry, "content", type="text").text = " ".join(finding.sentences)
    written: bytes = ET.tostring(feed, encoding="utf-8", xml_declaration=True)
    return written
