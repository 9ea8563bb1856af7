"""Read from a node's debug.log what it published, including messages that were never sent.

The node must run with NODE_OPTIONS. The n-th message of the `sequence` topic in a run has the counter n.
"""

import re
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

NODE_OPTIONS = ("-debug=zmq", "-logtimemicros=1")
WORDS = {
    "hashtx mempool acceptance": "A",
    "hashtx mempool removal": "R",
    "sequence block connect": "C",
    "sequence block disconnect": "D",
}
LINE = re.compile(rf"^(\S+Z) (?:\[\S+\] )*(?:zmq: )?Publish ({'|'.join(WORDS)}) ([0-9a-f]{{64}}) ")
STAMP = re.compile(r"^(\S+Z) ")
BEGIN = 'Command-line arg: regtest=""'


class Published(NamedTuple):
    """Holds one message of the `sequence` topic; the hash is in internal byte order."""

    at_us: int
    letter: str
    hash: bytes


class NodeRun(NamedTuple):
    """Holds one run of the node: when it began, and what it published, by counter."""

    began_us: int
    published: list[Published]


def read(path: Path) -> list[NodeRun]:
    """Return every run that a debug.log contains."""
    runs: list[NodeRun] = []
    with path.open(errors="replace") as lines:
        for line in lines:
            if BEGIN in line:
                runs.append(NodeRun(_us(STAMP.match(line)[1]), []))  # type: ignore[index] # every line has one
            elif match := LINE.match(line):
                stamp, words, hash_ = match.groups()
                runs[-1].published.append(Published(_us(stamp), WORDS[words], bytes.fromhex(hash_)[::-1]))
    return runs


def _us(stamp: str) -> int:
    moment = datetime.fromisoformat(stamp)
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond
