"""The one error that is shown without a traceback."""


class LocalError(Exception):
    """Something the person at the keyboard can act on: says what, where, and what to do."""
