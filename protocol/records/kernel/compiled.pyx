# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, binding=False, auto_pickle=False
"""The kernel, compiled: every loop over the bytes of messages and records.

`reference` has the same names with the same meaning, and says what that is. Numbers here are C
integers, and bytes are read where they lie; each function checks all lengths before it reads.
"""

import cython

from ..latency import LatencyCounts, exact_sum_ms
from ..marks import NO_MARKS, Marks
from .terms import Problem, Rewritten

include "bytes.pxi"
include "walk.pxi"
include "messages.pxi"
include "records.pxi"
include "batches.pxi"
include "columns.pxi"

FORM = "compiled"
SOURCES = horolog_sources.decode()
