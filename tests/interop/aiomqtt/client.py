"""A client of aiomqtt for the cases."""

import asyncio
import os
import unittest
from contextlib import AsyncExitStack

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

# Seconds. Far above the time of each operation.
LIMIT = 15


def properties(packet, **values):
    result = Properties(packet)
    for name, value in values.items():
        setattr(result, name, value)
    return result


def of_publish(**values):
    return properties(PacketTypes.PUBLISH, **values)


class Client:
    """A connection.

    aiomqtt shows neither the CONNACK nor the socket. Those are taken from the client of Paho in it.
    """

    def __init__(self, identifier, session_expiry=None, clean=True, **options):
        connect = properties(PacketTypes.CONNECT)
        if session_expiry is not None:
            connect.SessionExpiryInterval = session_expiry
        is_websocket = options.get("transport") == "websockets"
        self.mqtt = aiomqtt.Client(
            os.environ["INTEROP_HOST"],
            int(os.environ["INTEROP_WEBSOCKET_PORT" if is_websocket else "INTEROP_PORT"]),
            identifier=identifier,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=clean,
            properties=connect,
            timeout=LIMIT,
            **options,
        )
        self.paho = self.mqtt._client
        on_connect = self.paho.on_connect

        def connected(client, userdata, flags, reason, values):
            self.session_present = flags.session_present
            self.connack = values
            on_connect(client, userdata, flags, reason, values)

        self.paho.on_connect = connected

    async def subscribe(self, topic, qos):
        granted = await self.mqtt.subscribe(topic, qos)
        if [code.value for code in granted] != [qos]:
            raise AssertionError(f"granted {granted} for {topic} at QoS {qos}")

    async def publish(self, topic, payload, qos=1, **options):
        await self.mqtt.publish(topic, payload, qos, **options)

    async def next(self):
        return await asyncio.wait_for(anext(self.mqtt.messages), LIMIT)

    async def next_payload(self):
        return (await self.next()).payload.decode()

    async def end(self):
        """Ends the connection with DISCONNECT."""
        await self.mqtt.__aexit__(None, None, None)

    async def cut(self):
        """Ends the connection without DISCONNECT."""
        self.paho.socket().shutdown(2)
        await self.lost()

    async def lost(self):
        """Waits for the end of the connection, and returns its reason."""
        try:
            message = await self.next()
        except aiomqtt.MqttError as error:
            return error.__cause__
        raise AssertionError(f"a message came, and the connection did not end: {message.topic}")


class Case(unittest.IsolatedAsyncioTestCase):
    """A test with connections that end with it."""

    maxDiff = None

    async def asyncSetUp(self):
        self.connections = await self.enterAsyncContext(AsyncExitStack())

    async def connect(self, identifier, **options):
        client = Client(identifier, **options)
        await self.connections.enter_async_context(client.mqtt)
        return client
