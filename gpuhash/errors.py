"""Define the exceptions that gpuhash raises on purpose.

GpuhashError
├── InvalidInputError        (also ValueError)    an argument has a wrong dtype, shape, offset or target
├── UnknownAlgorithmError    (also ValueError)    there is no such algorithm or backend
├── BackendUnavailableError  (also RuntimeError)  no CUDA device, no CuPy, a library is missing
├── WrongHashError           (also RuntimeError)  a backend gave another digest than the reference
└── MeasurementRefusedError  (also RuntimeError)  a measurement lacks a right or the user's consent

The command line prints these errors without a traceback.
"""


class GpuhashError(Exception):
    """Base class of every exception that gpuhash raises on purpose."""


class InvalidInputError(GpuhashError, ValueError):
    """An argument cannot be hashed as asked; the message says what was seen and what is accepted."""


class UnknownAlgorithmError(GpuhashError, ValueError):
    """There is no algorithm or backend of this name; the message lists those that exist."""


class BackendUnavailableError(GpuhashError, RuntimeError):
    """The requested backend cannot run on this machine; the message says what is missing."""


class WrongHashError(GpuhashError, RuntimeError):
    """A backend returned another digest than the reference. Its results must not be used."""


class MeasurementRefusedError(GpuhashError, RuntimeError):
    """A measurement was not started because it lacks a privilege or the user's consent."""
