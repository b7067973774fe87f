"""Does a benchmark behave like the original, and does it leak anything of it?"""
