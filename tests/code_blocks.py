"""Find and run the Python code blocks of a document."""

import re
from pathlib import Path
from typing import Any

PLAIN, WITH_TORCH = "plain", ("Stable-Baselines3", "TorchRL")


def python_blocks(document: Path) -> dict[str, list[str]]:
    """Return the blocks under each heading that needs PyTorch, and all others together under PLAIN."""
    found: dict[str, list[str]] = {}
    for section in re.split(r"^## ", document.read_text(), flags=re.MULTILINE):
        heading = section.splitlines()[0]
        blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
        found.setdefault(heading if heading in WITH_TORCH else PLAIN, []).extend(blocks)
    return found


def run_blocks(document: Path, blocks: list[str], names: dict[str, Any]) -> None:
    """Run commands one after the other, as a user types them."""
    for block in blocks:
        exec(compile(block, str(document), "exec"), names)
