"""How machine instructions are counted, on lines as nvdisasm prints them."""

from gpuhash.measure.sass import _bank_reads, _longest_loop

Line = tuple[str, str, str]


def test_registers_are_counted_by_bank() -> None:
    """Results and uniform registers are not read; a register named twice is read once."""
    assert _bank_reads(["R0, R2, R4.reuse, R5", "R1, R3, R3, UR5", "R6, -R7, 0x10, RZ"]) == (2, 3)


def test_what_no_thread_reaches_is_no_loop() -> None:
    """The jump to itself behind the last exit is left out; a loop before it is found."""
    body: list[Line] = [("instruction", "LOP3.LUT", "R0, R1, R2, R3, 0x96, !PT"), ("instruction", "EXIT", "")]
    trap: list[Line] = [("label", ".L_9", ""), ("instruction", "BRA", "`(.L_9)"), ("instruction", "NOP", "")]
    loop: list[Line] = [
        ("label", ".L_1", ""),
        ("instruction", "IADD3", "R0, R1, R2, R3"),
        ("instruction", "BRA", "`(.L_1)"),
    ]

    assert _longest_loop([*body, *trap]) == body
    assert _longest_loop([*loop, *body, *trap]) == loop
