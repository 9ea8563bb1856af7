"""Define the shape of the rule files: which keys a TOML table may have, and what each value must look like.

Each class checks one table on its own. rules.py checks what depends on several tables, such as overlaps.
"""

import datetime as dt
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

MAX_HEIGHT = 2**31 - 1
MIN_TAG_BYTES = 3

SLUG_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"

Slug = Annotated[str, StringConstraints(pattern=SLUG_PATTERN)]
Text = Annotated[str, StringConstraints(pattern=r"^\S(.*\S)?$")]
Link = Annotated[str, StringConstraints(pattern=r"^(https?://\S+)?$")]
Hex = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2})+$")]
Height = Annotated[int, Field(ge=0, le=MAX_HEIGHT)]


class StrictModel(BaseModel):
    """Is the base class of all TOML tables here: an unknown key, or a value of another type, is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class WrittenRule(StrictModel):
    """Checks one pool rule as written in TOML: exactly one pattern, bounds in heights, and a source."""

    tag: str | None = None
    tag_hex: Hex | None = None
    address: Text | None = None
    script_hex: Hex | None = None
    from_height: Height = 0
    to_height: Height = MAX_HEIGHT
    source: Text
    note: Text | None = None

    @property
    def tag_bytes(self) -> bytes | None:
        """Return the bytes of the tag to look for in the coinbase script; None for a payout rule."""
        if self.tag is not None:
            return self.tag.encode()
        return None if self.tag_hex is None else bytes.fromhex(self.tag_hex)

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check a pool rule as read from TOML, and return it.

        Raise ValueError unless it has exactly one pattern, a long enough tag and ordered heights.
        """
        patterns = (self.tag, self.tag_hex, self.address, self.script_hex)
        if sum(pattern is not None for pattern in patterns) != 1:
            raise ValueError("needs exactly one of tag, tag_hex, address, script_hex")
        if self.tag_bytes is not None and len(self.tag_bytes) < MIN_TAG_BYTES:
            raise ValueError(f"a tag under {MIN_TAG_BYTES} bytes matches by chance; give a longer one")
        if self.from_height > self.to_height:
            raise ValueError(f"from_height {self.from_height} is above to_height {self.to_height}; swap them")
        return self


class WrittenMaker(StrictModel):
    """Checks the TOML table of one maker of block templates: name, tag, heights, source.

    A pool whose templates others make names such a maker by a tag in its coinbases.
    """

    name: Text
    tag: str | None = None
    tag_hex: Hex | None = None
    from_height: Height = 0
    to_height: Height = MAX_HEIGHT
    source: Text
    note: Text | None = None

    @property
    def tag_bytes(self) -> bytes:
        """Return the bytes of the tag to look for in the coinbase script."""
        return self.tag.encode() if self.tag is not None else bytes.fromhex(self.tag_hex or "")

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check a maker of block templates as read from TOML, and return it.

        Raise ValueError unless it has either `tag` or `tag_hex`, a long enough tag and ordered heights.
        """
        if (self.tag is None) == (self.tag_hex is None):
            raise ValueError("needs exactly one of tag, tag_hex")
        if len(self.tag_bytes) < MIN_TAG_BYTES:
            raise ValueError(f"a tag under {MIN_TAG_BYTES} bytes matches by chance; give a longer one")
        if self.from_height > self.to_height:
            raise ValueError(f"from_height {self.from_height} is above to_height {self.to_height}; swap them")
        return self


class PoolFile(StrictModel):
    """Checks the TOML file of one pool, <slug>.toml: name, other names, link, note, at least one rule."""

    name: Text
    aliases: list[Text] = []
    link: Link = ""
    note: Text | None = None
    rules: Annotated[list[WrittenRule], Field(min_length=1)]
    makers: list[WrittenMaker] = []


class WrittenMember(StrictModel):
    """Checks one member pool of an owner or group as written in TOML: slug, first and last date, source."""

    pool: Slug
    from_date: dt.date | None = None
    to_date: dt.date | None = None
    source: Text
    note: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check a membership as read from TOML, and return it; raise ValueError if its dates are reversed."""
        if self.from_date and self.to_date and self.from_date > self.to_date:
            raise ValueError(f"from_date {self.from_date} is after to_date {self.to_date}; swap them")
        return self


class WrittenEntity(StrictModel):
    """Checks one entity (an owner or group of pools) as written in TOML: id, name, kind, and member pools."""

    entity: Slug
    name: Text
    kind: Literal["owner", "proxy", "name"]
    note: Text | None = None
    members: Annotated[list[WrittenMember], Field(min_length=1)]


class EntitiesFile(StrictModel):
    """Checks entities.toml, the TOML file that lists all entities: owners and groups of pools."""

    entities: list[WrittenEntity] = []
