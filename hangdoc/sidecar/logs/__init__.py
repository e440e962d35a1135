"""``--logs``: each rank writes to files of its own, and one readable stream of them goes to stdout.

``choice``     what the user has told the launcher about its ranks' output, which is left as it is
``folder``     the folder of the logs: made, searched, and its files opened so that none of them can do harm
``owners``     which rank writes to a file
``lines``      bytes → lines: progress bars, unfinished and endless lines, terminal sequences
``folding``    lines of ranks → the stream, in which what several ranks say stands once
``echoes``     the same of ranks that say it later
``stream``     the thread that reads the files and writes the stream

The ranks write to the files themselves, and hangdoc reads them: they are complete even if hangdoc is killed.
"""
