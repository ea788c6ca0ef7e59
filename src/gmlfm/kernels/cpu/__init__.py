"""Training steps compiled for the CPU by numba: whole runs of steps without Python between them.

The work of a step is divided among threads. What each thread computes and the order in which their results are added are fixed,
so the same number of threads gives the same numbers; another number of threads differs by rounding.
Importing this package imports numba: do so only when a training begins.
"""
