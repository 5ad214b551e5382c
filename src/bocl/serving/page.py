"""The page: one file that asks for nothing from elsewhere, with a policy that lets a browser do nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from bocl.report.style import colours
from bocl.serving.replies import HTML, Reply

ROLES = ("ink", "muted", "grid", "paper", "panel", "bocl")


def page() -> Reply:
    """Return the page as it is sent."""
    text = resources.files("bocl.serving").joinpath("page.html").read_text(encoding="utf-8")
    light, dark = ("".join(f"--{role}:{colours()[role][side]};" for role in ROLES) for side in (0, 1))
    text = text.replace("/* light */", light).replace("/* dark */", dark)
    style, script = (_hash(re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)) for tag in ("style", "script"))
    policy = (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; img-src blob: data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = (("content-security-policy", policy), ("referrer-policy", "no-referrer"))
    return Reply(text.encode(), HTML, headers=headers)


def _hash(found: re.Match[str] | None) -> str:
    assert found is not None
    return "sha256-" + base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
