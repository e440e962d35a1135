"""What an editor says to debugpy: one breakpoint, and to go on from each stop. The protocol: Debug Adapter Protocol."""

import json
import socket
import threading


class Editor:
    def __init__(self, address):
        self.connection = socket.create_connection(address, timeout=60)
        self.stream = self.connection.makefile("rb")
        self.number = 0
        self.lines = []
        self.ready = threading.Event()

    def attach(self, file, line):
        """Have the breakpoint set, and go on at each stop from here on."""
        self.file, self.line = file, line
        self._ask("initialize", adapterID="python", clientID="test", linesStartAt1=True, pathFormat="path")
        self._ask("attach", justMyCode=False)
        thread = threading.Thread(target=self._listen, daemon=True)
        thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
        thread.start()
        if not self.ready.wait(60):
            raise TimeoutError("debugpy is not ready")

    def stops(self):
        """The lines at which it has stopped so far."""
        return list(self.lines)

    def _ask(self, command, **arguments):
        self.number += 1
        said = json.dumps({"seq": self.number, "type": "request", "command": command, "arguments": arguments}).encode()
        self.connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(said), said))

    def _listen(self):
        while header := self.stream.readline():
            self.stream.readline()
            said = json.loads(self.stream.read(int(header.split(b":")[1])))
            event, command = said.get("event"), said.get("command")
            if event == "initialized":
                points = [{"line": self.line}]
                self._ask("setBreakpoints", source={"path": self.file}, breakpoints=points)
                self._ask("configurationDone")
            elif event == "stopped":
                self.thread = said["body"]["threadId"]
                self._ask("stackTrace", threadId=self.thread, levels=1)
            elif command == "configurationDone":
                self.ready.set()
            elif command == "stackTrace":
                self.lines.append(said["body"]["stackFrames"][0]["line"])
                self._ask("continue", threadId=self.thread)
