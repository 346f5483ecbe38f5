"""What is found out about a text once, for everybody who looks at it."""

from __future__ import annotations

import re

#: Full-width marks of ordinary Chinese, the space among them.
WIDE_MARKS = "，：？！（）；　％～．＂"
#: No control, nothing invisible, no mark that joins the character before it; letters of ASCII and Chinese characters.
_ordinary = re.compile(
    f"[\t\n\r -~{WIDE_MARKS}…\u4e00-\u9fff\u3001-\u3011\u3014-\u301b\u2013\u2014\u2018\u2019\u201c\u201d\u2022"
    "\u00b7\u00d7\u20ac\u2190-\u2193\u2500-\u257f\u3400-\u4dbf\U0001f300-\U0001f3f3\U0001f400-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f900-\U0001f9ff]*"
).fullmatch


class Reading:
    """A text that is all there is. ``ordinary``: it is made of printable ASCII, tab and line ends, Chinese characters
    and their marks, full-width ones only of WIDE_MARKS, and a few common signs; of nothing else.
    """

    __slots__ = ("_ordinary", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._ordinary: bool | None = None

    @property
    def ordinary(self) -> bool:
        """Is it? Found out when somebody asks, and once."""
        known = self._ordinary
        if known is None:
            known = self._ordinary = _ordinary(self.text) is not None
        return known
