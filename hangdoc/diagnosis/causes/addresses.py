"""What decides at which address a rank looks for the others: around what sets it.

Example: `if self.shared: ⏎ port += 1 ⏎ os.environ["MASTER_PORT"] = str(port)` → that `if`.
"""

from __future__ import annotations

_PORT, _HOST = "MASTER_PORT", "MASTER_ADDR"
