"""The place in a source that Apache Hudi's streamer finds in a table: its text, and whose it is.

A table has one such place. The first application that says it in Hudi's words owns it; others keep their positions to
themselves. Each commit of ours that writes rows repeats the newest text, because Hudi's streamer asks the newest commit
that has one. Knows texts and names of applications, not what they mean.
"""

from __future__ import annotations

from typing import NamedTuple

HUDI_STREAMER = "hudi-streamer"
"""The application of what Apache Hudi's streamer committed."""


class Streamed(NamedTuple):
    """The newest place of a table. Without a text there is none.

    Attributes:
        text: How far the source was read, as Apache Hudi spells it.
        owner: The application that owns the place.
        said_by: The application that said the text: the owner, or Apache Hudi's streamer.
    """

    text: str = ""
    owner: str = ""
    said_by: str = ""

    def after(self, application: str, text: str) -> Streamed:
        """Return the place once an application has committed its position.

        Args:
            application: The application.
            text: The position as Apache Hudi spells it; '' where the application does not say.
        """
        if application == self.owner or text and not self.owner:
            return Streamed(text or self.text, application, application)
        return self

    def after_hudi(self, text: str) -> Streamed:
        """Return the place once Apache Hudi's streamer has committed `text`, its own place."""
        return Streamed(text, self.owner or HUDI_STREAMER, HUDI_STREAMER)

    def overtakes(self, application: str) -> bool:
        """Tell whether Apache Hudi's streamer has read on since the newest commit of `application`, the owner."""
        return bool(self.owner) and self.owner == application != self.said_by
