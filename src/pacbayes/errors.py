"""The errors this package raises on purpose. The command line prints them as one line."""


class PacBayesError(Exception):
    """Anything the user can put right; the message says how."""


class InvalidInput(PacBayesError, ValueError):
    """A value outside its domain: a label, a probability, an option, a shape."""


class UnsupportedModel(PacBayesError, TypeError):
    """A network that cannot be made stochastic without voiding its certificate."""


class DataError(PacBayesError):
    """A dataset that is missing, truncated, corrupt, or not what it claims to be."""


class MissingData(DataError):
    """A dataset, or the part asked for, that is not there at all."""


class RunError(PacBayesError):
    """A run folder that is not one, is unfinished, or does not match its certificate."""


class ProcessLost(PacBayesError, RuntimeError):
    """One of several processes that work together has gone."""


class NonFinite(PacBayesError, ArithmeticError):
    """Training met a NaN or an infinity; the last good state was kept."""


def first_line(error: BaseException) -> str:
    """What an error of others says, in one line; its kind, if it says nothing."""
    return (str(error) or type(error).__name__).splitlines()[0]
