"""Test that CITATION.cff is valid, and that it names the version that is released."""

import json
import tomllib
from pathlib import Path

import jsonschema
import yaml

ROOT = Path(__file__).resolve().parents[1]
# The schema of the format itself, by its authors under CC-BY-4.0: github.com/citation-file-format.
SCHEMA = ROOT / "tests" / "vectors" / "cff-1.2.0.schema.json"


def test_the_citation_is_valid_and_current() -> None:
    """It keeps the schema of the Citation File Format, and agrees with pyproject.toml."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(citation)
    assert (citation["title"], citation["version"], citation["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
