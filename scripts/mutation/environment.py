"""The names by which a run is given its task."""

TESTS = "MUTATION_TESTS"  # a file with the tests to run, in their order; without it all run
REPORT = "MUTATION_REPORT"  # the file for seconds and failures
REACHED = "MUTATION_REACHED"  # the file for the reached places; without it none are recorded
SHARED = "MUTATION_SHARED"  # set while a fixture is made that more than one test uses
