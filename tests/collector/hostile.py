"""Values that no node gives, and answers in which one field has such a value or is missing."""

from collections.abc import Iterator
from typing import Any

HOSTILE = (
    *(
        None,
        True,
        False,
        [],
        {},
        [[]],
        [None],
        {"": None},
        "",
        "zz",
        "11",
        "11" * 31,
        "11" * 33,
        "é" * 64,
        "\x1b[2J",
    ),
    *(-1, 1 << 31, 1 << 32, 1 << 63, 1 << 64, 1 << 300, -(1 << 63), 0.5, -0.5, 1e-9, 1e25, float("nan")),
)


def changed(sound: Any, where: str = "answer") -> Iterator[tuple[str, Any]]:
    """Yield copies of the answer `sound` with one change each, and a text that names the change.

    Each field in turn gets each hostile value, and is left out.
    """
    for value in HOSTILE:
        yield f"{where} = {value!r}", value
    if isinstance(sound, dict):
        for name, inner in sound.items():
            yield f"{where} without {name}", {key: value for key, value in sound.items() if key != name}
            for what, hostile in changed(inner, f"{where}.{name}"):
                yield what, {**sound, name: hostile}
    elif isinstance(sound, list) and sound:
        for what, hostile in changed(sound[-1], f"{where}[-1]"):
            yield what, [*sound[:-1], hostile]
