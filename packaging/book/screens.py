#!/usr/bin/env python3
"""Draws the pictures of terminals in docs/: screens.py STATESTORE

Starts a store, types the commands below into shells of tmux, and writes their real screens as SVG:
demo.svg, top.svg and traffic.svg. Versions and rates differ from run to run. Needs tmux, and a
command with the feature `top`.
"""

import contextlib
import html
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
LIMIT_SECONDS = 30
# At the end of a screen, which lacks blanks at the ends of lines.
PROMPT = r"\$$"
TMUX = ["tmux", "-L", f"screens-{os.getpid()}", "-f", "/dev/null"]
LINE, CHARACTER, MARGIN, TITLE = 19, 8.43, 18, 34
PAPER, INK, BORDER, DIM = "#1b1f27", "#e6e6e6", "#4a5260", "#9aa5b1"
PALETTE = ["#1b1f27", "#e06c75", "#9ece6a", "#e5c07b", "#7aa2f7", "#c678dd", "#7fd1b9", INK]

DEMO = """Two terminals. In the first, watch follows the key thermostat. In the second, set writes
21 and 22, and the first prints both, and deleted when the value expires. Then the first runs a
command under the lock pump, and the second waits for it. The first is killed, the lock expires, and
the second runs its command. At the end, doctor finds no problem."""
TOP = "The screen of statestore top: a list of keys, and the value of the selected key as JSON."
TRAFFIC = """The screen of statestore top: clients and keys, with requests per second, requests,
refusals, clock skew and writes."""


def wait_until(condition, what):
    end = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.05)
    sys.exit(f"screens.py: not seen in {LIMIT_SECONDS} s: {what}")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(*command):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


class Store:
    """A store at free ports. Pictures show its default ports instead."""

    def __init__(self):
        self.port, self.metrics_port = free_port(), free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self.metrics = f"http://127.0.0.1:{self.metrics_port}"

    def serve(self):
        listen, metrics = f"127.0.0.1:{self.port}", f"127.0.0.1:{self.metrics_port}"
        options = ["--listen", listen, "--metrics-listen", metrics, "--traffic"]
        return running("statestore", "serve", *options)

    def shown(self, line):
        return line.replace(str(self.port), "1883").replace(str(self.metrics_port), "9464")


class Terminal:
    """A shell in tmux."""

    def __init__(self, store, name, columns, rows):
        self.store, self.name, self.columns, self.rows = store, name, columns, rows
        variables = [f"STATESTORE_BROKER={store.url}", f"STATESTORE_CLIENT_ID={name}"]
        shell = ["env", *variables, r"PS1=\[\e[36m\]$\[\e[0m\] ", "bash", "--noprofile", "--norc"]
        self.tmux("new-session", "-d", "-s", name, "-x", columns, "-y", rows, *shell)
        self.wait(PROMPT)

    def tmux(self, *arguments):
        command = [*TMUX, *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def screen(self, *options):
        text = self.tmux("capture-pane", "-p", "-t", self.name, *options)
        return [self.store.shown(line) for line in text.rstrip("\n").split("\n")]

    def wait(self, pattern):
        """Waits until the last lines match."""
        found = lambda: re.search(pattern, "\n".join(self.screen()).rstrip("\n"))
        wait_until(found, f"{pattern!r} in {self.name}")

    def type(self, text):
        self.tmux("send-keys", "-t", self.name, "-l", text)
        end = self.store.shown(text)[-30:]
        wait_until(lambda: end in "".join(self.screen()), f"{text!r} in {self.name}")

    def key(self, key):
        self.tmux("send-keys", "-t", self.name, key)

    def child(self, pid=None):
        """Returns the process that the shell, or another process, has started."""
        pid = pid or self.tmux("display-message", "-p", "-t", self.name, "#{pane_pid}").strip()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
        wait_until(lambda: children.read_text(), f"a process in {self.name}")
        return int(children.read_text().split()[0])

    def close(self):
        self.tmux("kill-session", "-t", self.name)


def spans(line):
    """Splits a line into (text, foreground, background or None, is bold)."""
    result, fore, back, bold, inverse = [], INK, None, False, False
    for index, part in enumerate(re.split(r"\x1b\[([\d;]*)m", line)):
        if index % 2:
            for code in (int(code or 0) for code in part.split(";")):
                match code:
                    case 0: fore, back, bold, inverse = INK, None, False, False
                    case 1: bold = True
                    case 7: inverse = True
                    case 22: bold = False
                    case 27: inverse = False
                    case 39: fore = INK
                    case 49: back = None
                    case _ if 30 <= code <= 37: fore = PALETTE[code - 30]
                    case _ if 40 <= code <= 47: back = PALETTE[code - 40]
                    case _ if 90 <= code <= 97: fore = PALETTE[code - 90]
                    case _: sys.exit(f"screens.py: unknown code {code} in {line!r}")
        elif part:
            colors = (back or PAPER, fore) if inverse else (fore, back)
            result.append((part, *colors, bold))
    return result


def row(line, x, y, attributes=""):
    """Draws a line. Each has the width of its characters, in whatever font the viewer has."""
    texts, behind, column = "", "", 0
    for text, fore, back, bold in spans(line.rstrip()):
        if back:
            width = len(text) * CHARACTER
            left = x + column * CHARACTER
            size = f'width="{width:.1f}" height="{LINE}"'
            behind += f'<rect x="{left:.1f}" y="{y - 14}" {size} fill="{back}"/>'
        weight = ' font-weight="bold"' if bold else ""
        color = "" if fore == INK else f' fill="{fore}"'
        text = html.escape(text, quote=False)
        texts += f"<tspan{color}{weight}>{text}</tspan>" if color or weight else text
        column += len(text := re.sub(r"&\w+;", "?", text))
    if not column:
        return ""
    length = f'textLength="{column * CHARACTER:.1f}" lengthAdjust="spacingAndGlyphs"'
    return f'<g{attributes}>{behind}<text x="{x}" y="{y}" {length}>{texts}</text></g>\n'


def window(title, width, top, rows):
    height = TITLE + rows * LINE + 10
    dots = "".join(
        f'<circle cx="{20 + 18 * index}" cy="{top + 18}" r="5" fill="{color}"/>'
        for index, color in enumerate([PALETTE[1], PALETTE[3], PALETTE[2]])
    )
    frame = f'x=".5" y="{top + 0.5}" width="{width - 1}" height="{height - 1}" rx="8"'
    return height, f"""<rect {frame} fill="{PAPER}" stroke="{BORDER}"/>
{dots}<text x="{width / 2}" y="{top + 23}" text-anchor="middle" class="title">{title}</text>
"""


def picture(width, height, description, body):
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f"""<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="desc">
<desc id="desc">{description}</desc>
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace }}
text {{ fill: {INK}; white-space: pre }}
.title {{ fill: {DIM} }}
.past {{ opacity: 0 }}
@media (prefers-reduced-motion: no-preference) {{
.last {{ animation: hidden 0s step-end }}
.past {{ animation: shown 0s step-end }}
}}
@keyframes hidden {{ from, to {{ opacity: 0 }} }}
@keyframes shown {{ from, to {{ opacity: 1 }} }}
</style>
{body}</svg>
"""


def animation(terminals, frames):
    """Draws frames, which are pairs of seconds and the lines of each terminal. Viewers without
    animation show the last one."""
    width, top, body = round(2 * MARGIN + terminals[0].columns * CHARACTER), 0, ""
    for index, terminal in enumerate(terminals):
        height, drawn = window(terminal.name, width, top, terminal.rows)
        body += drawn
        for number in range(terminal.rows):
            versions = []
            for seconds, screens in frames:
                line = screens[index][number] if number < len(screens[index]) else ""
                if not versions or versions[-1][1] != line:
                    versions.append((seconds, line))
            y = top + TITLE + 14 + number * LINE
            for (seconds, line), following in zip(versions, [*versions[1:], None]):
                attributes = ""
                if following:
                    duration = f"animation-duration:{following[0] - seconds}s"
                    attributes = f' class="past" style="animation-delay:{seconds}s;{duration}"'
                elif seconds:
                    attributes = f' class="last" style="animation-duration:{seconds}s"'
                body += row(line, MARGIN, y, attributes)
        top += height + 8
    return picture(width, top - 8, DEMO, body)


def demo():
    store = Store()
    with store.serve():
        first, second = Terminal(store, "press-1", 60, 9), Terminal(store, "press-2", 60, 14)
        terminals, frames, now = [first, second], [], 0.0

        def show(pause):
            nonlocal now
            frames.append((now, [terminal.screen("-e") for terminal in terminals]))
            now += pause

        def run(terminal, command, pattern, reader=None):
            """Types a command, and waits until its output, or that of another one, matches."""
            terminal.type(command)
            show(1.0)
            terminal.key("Enter")
            (reader or terminal).wait(pattern)

        first.type("statestore watch thermostat --count 3")
        first.key("Enter")
        first.wait("live: .*$")
        show(2.0)
        run(second, "statestore set thermostat 21", r"\n21$", first)
        second.wait(r"\d:\w+\n" + PROMPT)
        show(1.5)
        run(second, "statestore set thermostat 22 --ttl 2s", r"\n22$", first)
        second.wait(r"\d:\w+\n" + PROMPT)
        show(2.0)
        first.wait(r"deleted\n" + PROMPT)
        show(1.5)
        run(first, "statestore lock pump --lease 2s -- sleep 60", "sleep 60$")
        holder = first.child()
        command = first.child(holder)
        show(1.5)
        run(second, "statestore lock pump -- echo 'the pump is mine'", "waiting for press-1$")
        show(1.5)
        os.kill(holder, signal.SIGKILL)
        first.wait(r"Killed.*\n" + PROMPT)
        os.kill(command, signal.SIGKILL)
        show(2.0)
        second.wait(r"\nthe pump is mine\n" + PROMPT)
        show(1.5)
        run(second, "statestore doctor | head -n 5", r"login.*\n" + PROMPT)
        show(0)
        for terminal in terminals:
            terminal.close()
    return animation(terminals, frames)


def still(terminal, description):
    width = round(2 * MARGIN + terminal.columns * CHARACTER)
    height, body = window("statestore top", width, 0, terminal.rows)
    for number, line in enumerate(terminal.screen("-e")):
        body += row(line, MARGIN, TITLE + 14 + number * LINE)
    return picture(width, height, description, body)


def press(number):
    """Returns a script for one client. It ends after some minutes, if nothing ends it before."""
    return f"""
for speed in $(seq 100 999); do
    statestore set line/{number}/speed $speed --ttl 60s
    statestore set line/{number}/state '{{"mode": "run", "batch": '$speed', "operator": "ann"}}'
    sleep 0.{number}
done >/dev/null"""


def top():
    store = Store()
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.serve())
        terminal = Terminal(store, "top", 72, 20)
        for number in (1, 2, 3):
            os.environ.update(STATESTORE_BROKER=store.url, STATESTORE_CLIENT_ID=f"press-{number}")
            stack.enter_context(running("bash", "-c", press(number)))
        terminal.wait(PROMPT)
        time.sleep(6)
        terminal.type(f"clear; statestore top --metrics-url {store.metrics}")
        terminal.key("Enter")
        terminal.wait("line/3/state")
        for _ in range(4):
            terminal.key("Down")
        terminal.wait("operator")
        terminal.key("v")
        terminal.wait("as JSON")
        keys = still(terminal, TOP)
        terminal.key("3")
        terminal.wait("clients by requests(.|\n)*press-1(.|\n)*line/1/state")
        traffic = still(terminal, TRAFFIC)
        terminal.close()
    return keys, traffic


def main(binary):
    folder = pathlib.Path(binary).resolve().parent
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    try:
        (DOCS / "demo.svg").write_text(demo())
        keys, traffic = top()
    finally:
        subprocess.run([*TMUX, "kill-server"], stderr=subprocess.DEVNULL)
    (DOCS / "top.svg").write_text(keys)
    (DOCS / "traffic.svg").write_text(traffic)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
