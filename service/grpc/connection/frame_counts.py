"""Counts the frames of a client that carry no request, and refuses a flood of them."""

from __future__ import annotations

from turnpike.service.grpc.connection.frames import ErrorCode, Http2Error

# Frames in a second that carry no request (PING, RST_STREAM and the like). A client that sends more is
# closed, as each makes us work and some make us answer.
MAX_CONTROL_FRAMES = 1000
# How many other frames of streams a client may send for each request and for each DATA frame of ours:
# WINDOW_UPDATE, or the end of a stream that we have ended. A client that updates both windows after each DATA
# frame sends two.
STREAM_FRAMES_PER_ANSWER = 4


class FrameCounts:
    """The frames of one connection since the last `reset`, about once a second."""

    __slots__ = ("_control_frames", "_earlier_answers", "_stream_frames", "requests", "sent_frames")

    def __init__(self) -> None:
        # requests of the client; and our DATA frames, apart from those of answers that fit in one
        self.requests = self.sent_frames = 0
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self._control_frames = self._stream_frames = 0
        # the client may still be reading these
        self._earlier_answers = self.requests + self.sent_frames
        self.requests = self.sent_frames = 0

    def count_control_frame(self) -> None:
        """Count a frame that carries no request. Raises Http2Error if there are too many."""
        self._control_frames += 1
        if self._control_frames > MAX_CONTROL_FRAMES:
            raise _flood("that carry no request", MAX_CONTROL_FRAMES)

    def count_stream_frame(self) -> None:
        """Count a frame about a stream. Raises Http2Error if there are too many for what was sent."""
        self._stream_frames += 1
        if self._stream_frames > MAX_CONTROL_FRAMES:
            answers = self._earlier_answers + self.requests + self.sent_frames
            limit = MAX_CONTROL_FRAMES + STREAM_FRAMES_PER_ANSWER * answers
            if self._stream_frames > limit:
                raise _flood("about streams for the answers that were sent", limit)


def _flood(frames: str, limit: int) -> Http2Error:
    return Http2Error(
        ErrorCode.ENHANCE_YOUR_CALM, f"expected at most {limit} frames {frames} in a second, got more"
    )
