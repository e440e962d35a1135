"""Which processes are the ranks of which job?"""
