"""The states of an HTTP/2 connection."""

from __future__ import annotations

import enum


class Http2State(enum.IntEnum):
    """How far a connection is, from its preface to its end.

    | in                  | event                                                           | next       |
    | ------------------- | --------------------------------------------------------------- | ---------- |
    | PREFACE             | the client's preface is complete                                | OPEN       |
    | OPEN                | the server drains: GOAWAY asks the client to open no streams    | GOING_AWAY |
    | GOING_AWAY          | the client had time to notice: GOAWAY names the last stream     | REFUSING   |
    | PREFACE to REFUSING | an error of the client, silence for too long, a drain when idle | LINGERING  |
    | any                 | the transport is closed, by us, by the client or by an error    | CLOSED     |

    A connection never returns to an earlier state, so comparisons use this order: from LINGERING on, input
    is ignored and no call is left.
    """

    # the preface has not arrived, or only a part of it
    PREFACE = 0
    # streams are opened and answered
    OPEN = 1
    # streams that the client opens until it has read the GOAWAY are answered
    GOING_AWAY = 2
    # new streams are ignored; those before the final GOAWAY are answered
    REFUSING = 3
    # all was sent; the client has time to read it and to close
    LINGERING = 4
    # the transport is gone
    CLOSED = 5


# Looking a member up in its enum takes 0.1 µs in Python 3.11, and each request would pay for several.
PREFACE, OPEN, GOING_AWAY, REFUSING, LINGERING, CLOSED = Http2State
