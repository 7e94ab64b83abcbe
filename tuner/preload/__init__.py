"""The dispatcher for programs in C, C++ and Fortran: a library in C that is loaded before MPI.

Python turns a tuning table into one flat file (`flat_table`), compiles the library for the user's
MPI (`compilation`), and starts the program with both (`tuner run`).
"""
