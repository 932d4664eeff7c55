#!/usr/bin/env python3
"""Runs the steps of a page: try-page.py STATESTORE PAGE

The blocks `sh` run in one shell, in an empty directory. The block `text` after one is its output,
apart from versions and line ends: `get` prints a line end only at a terminal. A block `console` has
commands after `$ `, each followed by its output.
"""

import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

MARK = "-- end of block"
LIMIT_SECONDS = 120


def steps(page):
    """Returns pairs of a script and its documented output, or None."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    result = []
    for (language, script), (kind, after) in zip(blocks, [*blocks[1:], ("", "")]):
        if language == "sh":
            result.append((script, after if kind == "text" else None))
        elif language == "console":
            commands = re.split(r"^\$ ", script, flags=re.MULTILINE)[1:]
            result += [(line, output) for line, _, output in (c.partition("\n") for c in commands)]
    return result


def masked(output):
    return re.sub(r"\b\d{13}:\d+:\w+", "VERSION", output).replace("\n", "")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def main(binary, page):
    blocks = steps(pathlib.Path(page).read_text())
    if not any(output for _, output in blocks):
        sys.exit(f"{page}: there are no steps with an output")
    script = "set -eu\n" + "".join(f"{block}\necho '{MARK}'\n" for block, _ in blocks)
    address = f"127.0.0.1:{free_port()}"
    environment = os.environ | {
        "PATH": f"{pathlib.Path(binary).resolve().parent}:{os.environ['PATH']}",
        "STATESTORE_SERVE_LISTEN": address,
        "STATESTORE_BROKER": f"mqtt://{address}",
    }
    with tempfile.TemporaryDirectory() as directory:
        shell = subprocess.Popen(
            ["bash", "-c", script],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = shell.communicate(timeout=LIMIT_SECONDS)
        finally:
            try:
                os.killpg(shell.pid, 9)
            except ProcessLookupError:
                pass
    failures = []
    actual = output.split(f"{MARK}\n")
    for (block, expected), printed in zip(blocks, actual):
        if expected is not None and masked(expected) != masked(printed):
            failures.append(f"{block}\nexpected:\n{expected}\nprinted:\n{printed}")
    if shell.returncode or len(actual) != len(blocks) + 1:
        failures.append(f"exit code {shell.returncode} after:\n{output}")
    if failures:
        sys.exit("\n\n".join(failures))
    print(f"{len(blocks)} steps")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
