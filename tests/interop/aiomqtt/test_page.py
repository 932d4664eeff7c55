"""The program of docs/without-sdk.md."""

import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "without-sdk.md"
# Neither program takes that long unless it hangs.
HANGS = 120


class Page(unittest.TestCase):
    def test_two_programs_of_the_page_wait_for_one_lock(self):
        program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.S)[1]
        command = [sys.executable, "-c", program]
        command += [os.environ["INTEROP_HOST"], os.environ["INTEROP_PORT"]]
        output = {"stdout": subprocess.PIPE, "text": True}
        for running in [subprocess.Popen(command, **output) for _ in range(2)]:
            self.addCleanup(running.kill)
            printed = running.communicate(timeout=HANGS)[0]
            self.assertEqual(running.returncode, 0, printed)
            version = r", '\d+:\d+:StateStore'\)\n"
            expected = r"\('OK', .*\)\n\('OK'" + version
            expected += r"changed: \[b'NOTIFY', b'SET', b'VALUE', b'21'\]\n\(b'21'" + version
            expected += (r"\('OK'" + version) * 2 + r"\(1, .*\)\n\(None, None\)\n"
            self.assertRegex(printed, f"^{expected}$")
