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
    """Is the base class of every exception that gpuhash raises on purpose."""


class InvalidInputError(GpuhashError, ValueError):
    """Means that an argument cannot be hashed as asked.

    The message says what was seen and what is accepted.
    """


class UnknownAlgorithmError(GpuhashError, ValueError):
    """Means that there is no algorithm or backend of this name; the message lists those that exist."""


class BackendUnavailableError(GpuhashError, RuntimeError):
    """Means that the requested backend cannot run on this machine; the message says what is missing."""


class WrongHashError(GpuhashError, RuntimeError):
    """Means that a backend returned another digest than the reference. Its results must not be used."""


class MeasurementRefusedError(GpuhashError, RuntimeError):
    """Means that a measurement was not started because it lacks a privilege or the user's consent."""
