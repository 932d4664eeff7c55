#!/usr/bin/env python3
"""Packs a statically linked `statestore` into a wheel, so that pip installs the command.

usage: wheel.py BINARY VERSION TARGET FOLDER     TARGET is x86_64-unknown-linux-musl, for example

Needs Python 3.8 and nothing else. Prints the path of the wheel. The same input gives the same bytes.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

# The static binary needs no C library, so each Linux of the architecture can run it.
PLATFORMS = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"
# `statestore` is left to a library for Python.
NAME = "statestore-cli"
SUMMARY = "The command statestore: a state store server with an MQTT 5 broker, and a client for it"


def main(binary, version, target, folder):
    arch, _, system = target.partition("-")
    if system != "unknown-linux-musl":
        sys.exit(f"wheel.py: {target}: only static binaries for Linux are supported")
    root = pathlib.Path(__file__).resolve().parent.parent
    tag = f"py3-none-{PLATFORMS.format(arch)}"
    # PEP 440: 0.2.0-rc.1 is 0.2.0rc1.
    version = version.replace("-rc.", "rc").replace("-beta.", "b").replace("-alpha.", "a")
    stem = f"{NAME.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    readme = (root / "cli/README.md").read_text(encoding="utf-8")
    # A key, a blank and the value on each line, then the text of the page.
    tags = "".join(f"Tag: py3-none-{platform}\n" for platform in tag.split("-")[2].split("."))
    files = {
        f"{stem}.data/scripts/statestore": pathlib.Path(binary).read_bytes(),
        f"{info}/METADATA": (
            "Metadata-Version: 2.4\n"
            f"Name: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\n"
            "License-Expression: MIT OR Apache-2.0\n"
            "License-File: LICENSE-APACHE\nLicense-File: LICENSE-MIT\n"
            "Requires-Python: >=3.8\n"
            "Description-Content-Type: text/markdown\n"
            f"\n{readme}"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: statestore-packaging\nRoot-Is-Purelib: false\n" + tags
        ),
        f"{info}/licenses/LICENSE-APACHE": (root / "LICENSE-APACHE").read_bytes(),
        f"{info}/licenses/LICENSE-MIT": (root / "LICENSE-MIT").read_bytes(),
    }
    path = pathlib.Path(folder) / f"{stem}-{tag}.whl"
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            content = content.encode() if isinstance(content, str) else content
            hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record += f"{name},sha256={hashed.decode()},{len(content)}\n"
            add(wheel, name, content)
        record += f"{info}/RECORD,,\n"
        add(wheel, f"{info}/RECORD", record.encode())
    print(path)


def add(wheel, name, content):
    # The default date, so that the time of the build is not part of the file.
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    mode = 0o755 if "/scripts/" in name else 0o644
    entry.external_attr = (0o100000 | mode) << 16
    wheel.writestr(entry, content)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
