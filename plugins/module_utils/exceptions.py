"""An unexpected exception as the answer of a module. Standard library only, Python 3.6 or newer."""

import contextlib


@contextlib.contextmanager
def reported(module):
    """Let an exception be the module's answer, with its causes. Ansible's versions differ there."""
    try:
        yield
    except Exception as problem:
        said, each = [], problem
        while each is not None and len(said) < 4:
            said.append(str(each) or type(each).__name__)
            each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        module.fail_json(msg=": ".join(said))
