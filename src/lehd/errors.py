"""The errors a user can cause. Each message says what is wrong and what was expected."""


class LehdError(ValueError):
    """Bad input: the command line prints the message and exits with code 2."""


class InfeasibleError(LehdError):
    """A solution that misses or repeats a node, or overloads a vehicle."""
