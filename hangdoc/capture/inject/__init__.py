"""Running code inside a process that was started without the probe: gdb, and when it is safe."""
