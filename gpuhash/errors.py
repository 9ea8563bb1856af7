"""Everything gpuhash raises on purpose.

GpuhashError
├── InvalidInputError        (also ValueError)    wrong dtype, shape, offsets, target
├── UnknownAlgorithmError    (also ValueError)    no such algorithm or backend
├── BackendUnavailableError  (also RuntimeError)  no CUDA device, no CuPy, a library is missing
├── WrongHashError           (also RuntimeError)  a backend disagreed with the reference
└── MeasurementRefusedError  (also RuntimeError)  a measurement that lacks a right or a consent

The command line prints these without a traceback.
"""


class GpuhashError(Exception):
    """Anything gpuhash raises on purpose."""


class InvalidInputError(GpuhashError, ValueError):
    """An argument cannot be hashed as asked; the message says what was seen and what is accepted."""


class UnknownAlgorithmError(GpuhashError, ValueError):
    """The algorithm or backend name is not one of ours; the message lists those that are."""


class BackendUnavailableError(GpuhashError, RuntimeError):
    """The backend asked for cannot run here; the message says what is missing."""


class WrongHashError(GpuhashError, RuntimeError):
    """A backend returned something else than the reference. Its results must not be used."""


class MeasurementRefusedError(GpuhashError, RuntimeError):
    """A measurement was not started, because it needs a privilege or a consent that was not given."""
