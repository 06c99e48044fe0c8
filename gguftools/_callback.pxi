# Part of _native.pyx: functions that libllama calls.

from threading import local

cdef object _kept = local()  # and not a dict by thread ids: those of ended threads are given to new ones


class Callback:
    """A Python function for libllama to call. What it raises, or a signal's handler in it, is kept for
    raise_kept(); from then on libllama is answered False, which stops a load.

    Compiled, since Python looks for signals on entry of a function: before a `try` of its own could catch.
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        if getattr(_kept, "error", None) is not None:
            return False
        try:
            return self.function(*arguments)
        except BaseException as error:
            _kept.error = error
            return False


def raise_kept():
    """Raises what callbacks kept in this thread, as itself."""
    error = getattr(_kept, "error", None)
    if error is not None:
        _kept.error = None
        raise error from None
