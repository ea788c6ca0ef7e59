"""Training steps compiled for the CPU by numba: whole runs of steps without a word of Python between them.

Work is cut into lanes, one a thread. What a lane computes and the order in which lanes are added up are fixed, so the same
number of threads gives the same numbers; another number of threads differs by rounding.
Importing this package imports numba: do so only when a training begins.
"""
