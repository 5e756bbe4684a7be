"""The kernel: every loop over the bytes of messages and records, over the fields of requests and
responses, and over the messages of a producer that wait to be sent.

It has two forms with the same names and the same results: `compiled`, built from `compiled.pyx`
where there is a C compiler, and `reference`, plain Python, which defines what each name means.
`horolog.compiled` chooses one; `FORM` names it.
"""

from typing import TYPE_CHECKING

from ....compiled import kernel_form

if TYPE_CHECKING or kernel_form() == "reference":
    from .reference import *
else:
    from .compiled import *
