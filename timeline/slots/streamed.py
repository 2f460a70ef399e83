"""Source position of Apache Hudi's streamer.

A table has one such position. The first application that sets it in Hudi's format owns it. Positions of other
applications are not published. Each commit of hoodoo that writes rows repeats the newest position, because Hudi's
streamer reads it from the newest commit with a position.
"""

from __future__ import annotations

from typing import NamedTuple

HUDI_STREAMER = "hudi-streamer"
"""Application name that stands for Apache Hudi's streamer."""


class Streamed(NamedTuple):
    """Source position of Apache Hudi's streamer.

    Attributes:
        text: The position in the format of Apache Hudi, or '' if it is not set.
        owner: The application that owns the position.
        said_by: The application that reported the text: the owner, or Apache Hudi's streamer.
    """

    text: str = ""
    owner: str = ""
    said_by: str = ""

    def after(self, application: str, text: str) -> Streamed:
        if application == self.owner or text and not self.owner:
            return Streamed(text or self.text, application, application)
        return self

    def after_hudi(self, text: str) -> Streamed:
        return Streamed(text, self.owner or HUDI_STREAMER, HUDI_STREAMER)

    def overtakes(self, application: str) -> bool:
        """Check whether Apache Hudi's streamer has read further.

        False if `application` is not the owner.
        """
        return bool(self.owner) and self.owner == application != self.said_by
