"""From the outside world to graphs and series, one module per format.

Readers look at the content, keep integer nanoseconds, count what they repair or leave out, and
answer a broken file with one clear line. Import the module of the format you have.
"""
