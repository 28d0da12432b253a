"""The states of an HTTP connection."""

from __future__ import annotations

import enum


class HttpState(enum.IntEnum):
    """What the client of a connection may send next.

    | in                | event                                                          | next        |
    | ----------------- | -------------------------------------------------------------- | ----------- |
    | NEW, READY        | a part of a head arrives                                       | HEAD        |
    | NEW, READY, HEAD  | a head is complete                                             | BODY        |
    | BODY              | the body is complete; at once, if there is none                | READY       |
    | NEW to BODY       | input is malformed, or a head takes too long                   | REFUSED     |
    | READY to REFUSED  | the client ends its side while its last request is answered    | HALF_CLOSED |
    | READY to REFUSED  | the last answer is sent, and the client may still be sending   | LINGERING   |
    | any               | the transport is closed, by us, by the client or by an error   | CLOSED      |

    READY, HEAD and BODY alternate for each request. Other states are never entered again, so comparisons use
    their order: before REFUSED, input is parsed; from LINGERING on, nothing is sent.

    Answers have no states here, because they do not alternate with input: while a body arrives, its own
    request or one before it may be answered. The current request and the pipeline say what is left to answer.
    """

    # nothing has arrived; the first head has less time than later ones
    NEW = 0
    # between two requests
    READY = 1
    # a part of a head has arrived
    HEAD = 2
    # a head has arrived, and not all of its body
    BODY = 3
    # malformed input is answered after all requests before it; nothing is parsed any more
    REFUSED = 4
    # the client sends nothing any more, and may still read; requests are answered, then the connection ends
    HALF_CLOSED = 5
    # all answers are sent; input is ignored until the client closes or its time is over
    LINGERING = 6
    # the transport is gone
    CLOSED = 7


# Looking a member up in its enum takes 0.1 µs in Python 3.11, and each request would pay for several.
NEW, READY, HEAD, BODY, REFUSED, HALF_CLOSED, LINGERING, CLOSED = HttpState
