#!/usr/bin/env python3
"""Records the terminal session of README.md: demo.py STATESTORE >docs/demo.svg

Starts a store, runs the commands below with it, and writes their real output as an animated SVG.
Viewers without animation show the whole session.
"""

import html
import socket
import subprocess
import sys
import time

SCRIPT = [
    ["set", "thermostat", "21"],
    ["get", "thermostat"],
    ["set", "thermostat", "22", "--ttl", "10s"],
    ["keys", "thermo*", "--values"],
    ["lock", "nightly", "--", "echo", "one at a time"],
    ["doctor"],
]
COLUMNS, LINE, TOP, LEFT, CHARACTER = 84, 19, 58, 18, 8.43
PROMPT, TEXT, DIM, GOOD = "#7fd1b9", "#e6e6e6", "#9aa5b1", "#9ece6a"


def quoted(arguments):
    return " ".join(f"'{word}'" if "*" in word or " " in word else word for word in arguments)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit("the store did not start")


def record(binary):
    """Returns lines as (seconds, is a command, text)."""
    port = free_port()
    serve = [binary, "serve", "--listen", f"127.0.0.1:{port}"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    try:
        wait_for(port)
        ready = server.stdout.readline().rstrip().replace(str(port), "1883")
        lines = [(0.5, True, "statestore serve &"), (1.2, False, ready)]
        now = 2.2
        for arguments in SCRIPT:
            lines.append((now, True, quoted(["statestore", *arguments])))
            command = [binary, *arguments[:1], "--broker", f"mqtt://127.0.0.1:{port}", *arguments[1:]]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            now += 0.7
            for line in done.stdout.splitlines():
                lines.append((now, False, line.replace(str(port), "1883").replace("\t", "    ")))
                now += 0.08
            now += 1.0
        return lines
    finally:
        server.terminate()
        server.wait()


def span(color, text):
    return f'<tspan fill="{color}">{html.escape(text)}</tspan>'


def draw(lines):
    rows = []
    for seconds, is_command, text in lines:
        if is_command:
            rows.append((seconds, span(PROMPT, "$ ") + span(TEXT, text)))
            continue
        while text:
            cut = len(text) if len(text) <= COLUMNS else text.rfind(" ", 0, COLUMNS)
            part, text = text[:cut], text[cut:].lstrip()
            first, blank, rest = part.partition(" ")
            if first in ("ok", "skipped"):
                rows.append((seconds, span(GOOD, first + blank) + span(DIM, rest)))
            else:
                rows.append((seconds, span(DIM, part)))
    width, height = round(2 * LEFT + COLUMNS * CHARACTER), TOP + LINE * len(rows) + 12
    texts = [
        f'<text x="{LEFT}" y="{TOP + LINE * number}" style="animation-duration:{seconds:.2f}s">{row}</text>'
        for number, (seconds, row) in enumerate(rows)
    ]
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-label="A terminal session with statestore">
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre }}
@media (prefers-reduced-motion: no-preference) {{ text {{ animation: hidden 0s step-end }} }}
@keyframes hidden {{ from, to {{ opacity: 0 }} }}
</style>
<rect width="{width}" height="{height}" rx="10" fill="#1b1f27"/>
<circle cx="22" cy="20" r="6" fill="#e06c75"/><circle cx="42" cy="20" r="6" fill="#e5c07b"/>\
<circle cx="62" cy="20" r="6" fill="#98c379"/>
{chr(10).join(texts)}
</svg>
"""


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.stdout.write(draw(record(sys.argv[1])))
