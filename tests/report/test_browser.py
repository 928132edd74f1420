"""The page in a real browser, where Chromium is installed: no complaints, pictures drawn, a phone is wide enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pacbayes.report import write_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")

# The page is looked at from outside, for it has no scripts and allows none.
FRAME = """<!DOCTYPE html><iframe id="frame" src="{page}" width="{width}" height="9000" style="border:0"></iframe>
<pre id="seen"></pre><script>
frame.onload = () => {{
  const page = frame.contentDocument;
  const drawn = [...page.querySelectorAll("svg, img")].filter(e => e.getBoundingClientRect().width > 100).length;
  const images = [...page.querySelectorAll("img")].filter(e => e.naturalWidth > 0).length;
  seen.textContent = `width=${{page.documentElement.scrollWidth}} drawn=${{drawn}} images=${{images}}`;
}};
</script>"""


def browse(folder: Path, address: Path, *options: str) -> tuple[str, str]:
    done = subprocess.run(
        [
            str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
            "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=5000", *options,
            address.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("width", [360, 1200])
def test_it_fits_shows_its_pictures_and_logs_nothing(image_run, tmp_path, width):
    page = write_report(image_run)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.format(page=page.as_uri(), width=width))
    out, log = browse(tmp_path, frame, "--dump-dom")
    (found,) = re.findall(r"width=(\d+) drawn=(\d+) images=(\d+)", out)
    assert int(found[0]) <= width
    # 8 drawings and 12 images.
    assert int(found[1]) == 20 and int(found[2]) == 12
    assert "CONSOLE" not in log


def test_it_prints(image_run, tmp_path):
    browse(tmp_path, write_report(image_run), f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
