"""Test kit: a clock that tests move, faulty files, a broker in the test process."""
