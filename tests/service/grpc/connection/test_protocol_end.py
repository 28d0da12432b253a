"""How connections end: GOAWAY while the server drains, the end of streams of messages, and lost clients."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.echo_calls import LARGE, STREAM, UNARY, WAIT, Connection, EchoServer, run
from tests.support.h2_client import END_HEADERS, GOAWAY, HEADERS, data, frame, message
from tests.support.in_process_worker import until
from turnpike.service.grpc.connection.call import Call

LAST_ID = 2**31 - 1


def drain(server: EchoServer, connection: Connection) -> None:
    """Begin to drain, as the server of the port does."""
    server.shared.draining = True
    connection.protocol.begin_drain()
    connection.send()


def close_if_idle(connection: Connection, seconds: float) -> None:
    """Have the connection close if it is idle, as if this time had passed."""
    connection.protocol.close_if_idle(asyncio.get_running_loop().time() + seconds)
    connection.send()


def test_draining_asks_the_client_to_open_no_more_streams() -> None:
    """Those that are on their way are answered. When there are none, the final GOAWAY follows."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, WAIT, b"x"))
        drain(server, connection)
        drain(server, connection)
        assert client.goaways == [(LAST_ID, "NO_ERROR", "the server is stopping")]
        connection.send(client.call(3, UNARY, b"on its way"))
        assert (await connection.wait_for(3)).messages == [b"on its way"]
        close_if_idle(connection, -1)
        server.app.release.set()
        assert (await connection.wait_for(1)).messages == [b"released"]
        close_if_idle(connection, -1)
        assert len(client.goaways) == 1
        close_if_idle(connection, 1)
        assert client.goaways[1:] == [(3, "NO_ERROR", "")]
        assert connection.wire.eof_written
        assert not connection.protocol.has_pending_output

    run(scene)


def test_a_client_that_ignores_goaway_gets_no_further_answers() -> None:
    """The end of the server must not wait for it. Its open calls are answered."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, WAIT, b"x"))
        drain(server, connection)
        close_if_idle(connection, 1)
        close_if_idle(connection, 1)
        assert client.goaways[1:] == [(1, "NO_ERROR", "")]
        # the table of headers is kept, and frames of ignored streams are no errors
        connection.send(
            client.call(3, UNARY, b"ignored"), client.head(5, UNARY) + client.data(5, message(b"x"))
        )
        server.app.release.set()
        assert (await connection.wait_for(1)).messages == [b"released"]
        await connection.turns()
        assert server.app.read == []
        close_if_idle(connection, 1)
        assert client.goaways[2:] == [(1, "NO_ERROR", "")]
        assert not connection.protocol.has_pending_output

    run(scene)


def test_a_connection_that_comes_while_the_server_drains() -> None:
    """Its first call is answered, after GOAWAY."""

    async def scene(server: EchoServer) -> None:
        connection = Connection(server)
        drain(server, connection)
        assert connection.client.goaways == []
        connection.send(connection.client.start(), connection.client.call(1, UNARY, b"x"))
        assert (await connection.wait_for(1)).messages == [b"x"]
        assert connection.client.goaways == [(LAST_ID, "NO_ERROR", "the server is stopping")]

    run(scene)


@pytest.mark.parametrize("sent", [0, 3, 7])
def test_streams_of_messages_end_while_the_server_drains(sent: int) -> None:
    """One that waits for its next message, but not one of whose message a part has arrived."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.head(1, STREAM), client.data(1, message(b"first")))
        await connection.turns()
        connection.send(client.data(1, message(b"second")[:sent]))
        await connection.turns()
        drain(server, connection)
        close_if_idle(connection, -1)
        await connection.turns()
        assert not client.answers[1].done
        close_if_idle(connection, 1)
        await connection.turns()
        answer = client.answers[1]
        if sent:
            assert not answer.done
            connection.send(client.data(1, message(b"second")[sent:]))
            await connection.turns()
            # it has not been idle again
            assert not answer.done
            close_if_idle(connection, 1)
        await connection.wait_for(1)
        assert answer.messages == [b"first", b"second"][: 1 + bool(sent)]
        assert (answer.status, answer.text) == (14, "the server is stopping: open a new stream")
        connection.check_windows()

    run(scene)


def test_nothing_is_answered_after_the_final_goaway() -> None:
    """Not even errors: the client may be sending what it had on its way."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        close_if_idle(connection, 1)
        written = len(connection.wire.written)
        connection.send(client.call(1, UNARY, b"x"), data(99, b"x"), frame(HEADERS, END_HEADERS, 0, b"\xff"))
        drain(server, connection)
        await connection.turns()
        assert len(connection.wire.written) == written
        assert server.app.started == 0

    run(scene)


def test_a_client_that_does_not_close_is_closed() -> None:
    """It has a moment to read its last answers."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        close_if_idle(connection, 1)
        connection.pass_time(1)
        assert not connection.wire.closing
        connection.pass_time(3)
        assert connection.wire.closing

    run(scene)


def test_the_end_of_input_closes_the_connection() -> None:
    """Calls that wait are cancelled, so that no model runs for a client that has gone."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, WAIT, b"x"), client.head(3, STREAM), client.call(5, LARGE, b"1000000"))
        await connection.turns()
        assert connection.protocol.eof_received() is False
        connection.wire.close()
        await connection.turns()
        assert server.app.cancelled == 1
        assert server.app.counters.in_flight == 0
        assert server.app.budget.bytes == 0

    run(scene)


def test_goaway_of_the_client_changes_nothing() -> None:
    """Its open calls are answered."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        client = connection.client
        connection.send(client.call(1, WAIT, b"x"), frame(GOAWAY, 0, 0, bytes(8)))
        server.app.release.set()
        assert (await connection.wait_for(1)).messages == [b"released"]

    run(scene)


def test_a_call_that_is_cut_off_is_reset() -> None:
    """The server ends after `--drain-seconds`; what the client gets is no answer."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()
        connection.send(connection.client.call(1, WAIT, b"x"))
        (call,) = server.shared.running
        call.cut_off()
        answer = await connection.wait_for(1)
        assert (answer.headers, answer.reset) == ({}, "INTERNAL_ERROR")

    run(scene)


def test_an_error_at_the_end_of_a_call_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as for lack of memory. Otherwise the client would wait for ever."""

    async def scene(server: EchoServer) -> None:
        connection = server.connect()

        def fail(call: Call, error: BaseException | None) -> None:
            server.shared.running.discard(call)
            raise MemoryError

        monkeypatch.setattr(connection.protocol, "call_ended", fail)
        connection.send(connection.client.call(1, UNARY, b"x"))
        await until(connection.wire.is_closing)

    run(scene)
