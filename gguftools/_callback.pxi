# Part of _native.pyx: functions that libllama calls.

from threading import get_ident

cdef dict _raised = {}


class Callback:
    """A Python function for libllama to call. What it raises, or a signal's handler in it, is kept for
    raise_kept(); from then on libllama is answered False, which stops a load.

    Compiled, since Python looks for signals on entry of a function: before a `try` of its own could catch.
    """

    def __init__(self, function):
        self.function = function

    def __call__(self, *arguments):
        thread = get_ident()
        if thread in _raised:
            return False
        try:
            return self.function(*arguments)
        except BaseException as error:
            _raised[thread] = error
            return False


def raise_kept():
    """Raises what callbacks kept in this thread, as itself."""
    error = _raised.pop(get_ident(), None)
    if error is not None:
        raise error from None
