"""Source position of Apache Hudi's streamer.

A table has one such position. The first application that sets it in Hudi's format owns it. Positions of other
applications are not published. Each commit of hoodoo that writes rows repeats the newest position, because Hudi's
streamer reads it from the newest commit with a position.
"""

from __future__ import annotations

from typing import NamedTuple

HUDI_STREAMER = "hudi-streamer"
"""Application name that stands for Apache Hudi's streamer."""


class StreamerPosition(NamedTuple):
    """Source position of Apache Hudi's streamer.

    Attributes:
        text: The position in the format of Apache Hudi, or '' if it is not set.
        owner: The application that owns the position.
        said_by: The application that reported the text: the owner, or Apache Hudi's streamer.
    """

    text: str = ""
    owner: str = ""
    said_by: str = ""

    def after(self, application: str, text: str) -> StreamerPosition:
        if application == self.owner or text and not self.owner:
            return StreamerPosition(text or self.text, application, application)
        return self

    def after_hudi(self, text: str) -> StreamerPosition:
        return StreamerPosition(text, self.owner or HUDI_STREAMER, HUDI_STREAMER)

    def is_ahead_of(self, application: str) -> bool:
        """Check whether the streamer is ahead of a position.

        False if `application` is not the owner.
        """
        return bool(self.owner) and self.owner == application != self.said_by
