"""Cases of the state store protocol."""

import re
import time

from client import Case, of_publish

GUID = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
REQUEST_TOPIC = f"statestore/v1/{GUID}/command/invoke"


def array(*elements):
    """An array of blob strings in RESP3."""
    blobs = "".join(f"${len(element)}\r\n{element}\r\n" for element in elements)
    return f"*{len(elements)}\r\n{blobs}"


def clock(version):
    """Parses a hybrid logical clock into parts that can be compared."""
    wall, counter, node = re.fullmatch(r"(\d+):(\d+):(.+)", version).groups()
    return int(wall), int(counter), node


def hexadecimal(text):
    return text.encode().hex().upper()


class Store:
    """A client of the store, on the protocol alone."""

    def __init__(self, case, client, identifier):
        self.case, self.client, self.identifier = case, client, identifier
        self.responses = f"clients/{identifier}/services/statestore/_any_/command/invoke/response"
        self.notifications = (
            f"clients/statestore/v1/{GUID}/{hexadecimal(identifier)}/command/notify"
        )
        self.requests = 0

    def timestamp(self):
        return f"{time.time_ns() // 1_000_000}:0:{self.identifier}"

    async def send(self, *elements, qos=1, correlation=None, **changes):
        """Sends a request. Changes replace user properties; None removes one."""
        self.requests += 1
        correlation = correlation or bytes([self.requests] * 16)
        user = {"__ts": self.timestamp(), "__srcId": self.identifier, "__protVer": "1.0"} | changes
        values = of_publish(
            ResponseTopic=self.responses,
            CorrelationData=correlation,
            ContentType="application/octet-stream",
            MessageExpiryInterval=10,
            UserProperty=[pair for pair in user.items() if pair[1] is not None],
        )
        await self.client.publish(REQUEST_TOPIC, array(*elements), qos, properties=values)
        return correlation

    async def response(self, correlation, reply):
        """Checks that the next message is this response, and returns its version."""
        message = await self.client.next()
        values = message.properties
        user = dict(values.UserProperty)
        self.case.assertEqual(message.topic.value, self.responses)
        self.case.assertEqual(message.payload.decode(), reply)
        self.case.assertEqual(message.qos, 1)
        self.case.assertEqual(values.CorrelationData, correlation)
        content = getattr(values, "ContentType", "application/octet-stream")
        self.case.assertEqual(content, "application/octet-stream")
        self.case.assertEqual(user["__stat"], "200")
        return user.get("__ts")

    async def expect(self, reply, *elements, **options):
        return await self.response(await self.send(*elements, **options), reply)

    async def notification(self, key, version, *elements):
        """Checks that the next message is this notification."""
        message = await self.client.next()
        topic = f"{self.notifications}/{hexadecimal(key)}"
        self.case.assertEqual(message.topic.value, topic)
        self.case.assertEqual(message.payload.decode(), array("NOTIFY", *elements))
        self.case.assertEqual(message.qos, 1)
        self.case.assertEqual(dict(message.properties.UserProperty)["__ts"], version)


class Protocol(Case):
    async def open(self, identifier, **options):
        store = Store(self, await self.connect(identifier, **options), identifier)
        await store.client.subscribe(store.responses, 1)
        await store.client.subscribe(f"{store.notifications}/+", 1)
        return store

    async def test_set_and_get(self):
        store, other = await self.open("py-set-client"), await self.open("py-set-other")
        key = "py-set/key"
        self.assertIsNone(await store.expect("$-1\r\n", "GET", key))

        sent = store.timestamp()
        version = await store.expect("+OK\r\n", "SET", key, "value", __ts=sent)
        self.assertGreater(clock(version), clock(sent))
        for client in [store, other]:
            self.assertEqual(await client.expect("$5\r\nvalue\r\n", "GET", key), version)
        again = await other.expect("+OK\r\n", "SET", key, "")
        self.assertGreater(clock(again), clock(version))
        await store.expect("$0\r\n\r\n", "GET", key)

        self.assertEqual(await store.expect(":-1\r\n", "SET", key, "new", "NX"), again)
        # The dialect of the public document.
        await store.expect("-1\r\n", "SET", key, "new", "NX", __protVer=None)
        self.assertEqual(await store.expect(":1\r\n", "DEL", key), again)
        await store.expect(":0\r\n", "DEL", key)

    async def test_websocket_with_the_address_of_the_server_as_origin(self):
        store = await self.open("py-websocket", transport="websockets")
        await store.expect("+OK\r\n", "SET", "py-websocket/key", "value")
        await store.expect("$5\r\nvalue\r\n", "GET", "py-websocket/key")

    async def test_redelivery(self):
        store = await self.open("py-redelivery")
        request = ("SET", "py-redelivery/key", "value", "NX")
        same = {"correlation": b"0123456789abcdef", "__ts": store.timestamp()}
        version = await store.expect("+OK\r\n", *request, **same)
        self.assertEqual(await store.expect("+OK\r\n", *request, **same), version)

    async def test_errors(self):
        store = await self.open("py-errors")
        key = "py-errors/key"
        request = ("SET", key, "value")
        await store.expect("-ERR missing timestamp\r\n", *request, __ts=None)
        await store.expect("-ERR malformed timestamp\r\n", *request, __ts="now")
        for qos in [0, 2]:
            error = "-ERR the request must be published with QoS 1\r\n"
            await store.expect(error, *request, qos=qos)
        await store.expect("-ERR unknown command\r\n", "NONE", key)
        await store.expect("-ERR the key length is zero\r\n", "GET", "")
        await store.expect("$-1\r\n", "GET", key)

        await store.expect("+OK\r\n", *request, __ft=store.timestamp())
        required = "-ERR a fencing token is required for this request\r\n"
        await store.expect(required, "SET", key, "other")
        lower = (
            "-ERR the request fencing token is a lower version than "
            "the fencing token protecting the resource\r\n"
        )
        await store.expect(lower, "DEL", key, __ft="1:0:token")
        await store.expect("$5\r\nvalue\r\n", "GET", key)

    async def test_key_notify(self):
        watcher, writer = await self.open("py-notify-watcher"), await self.open("py-notify-writer")
        key = "py-notify/key"
        self.assertIsNone(await watcher.expect("+OK\r\n", "KEYNOTIFY", key))

        version = await writer.expect("+OK\r\n", "SET", key, "value")
        await watcher.notification(key, version, "SET", "VALUE", "value")
        await writer.expect(":-1\r\n", "SET", key, "other", "NX")
        await writer.expect("+OK\r\n", "SET", f"{key}/other", "value")
        await writer.expect(":1\r\n", "DEL", key)
        await watcher.notification(key, version, "DELETE")

        version = await writer.expect("+OK\r\n", "SET", key, "brief", "PX", "100")
        await watcher.notification(key, version, "SET", "VALUE", "brief")
        await watcher.notification(key, version, "DELETE")
        await watcher.expect("$-1\r\n", "GET", key)

        version = await writer.expect("+OK\r\n", "SET", key, "last")
        stop = await watcher.send("KEYNOTIFY", key, "STOP")
        await watcher.notification(key, version, "SET", "VALUE", "last")
        await watcher.response(stop, "+OK\r\n")
        await writer.expect("+OK\r\n", "SET", key, "unwatched")
        await watcher.expect("$9\r\nunwatched\r\n", "GET", key)
        await watcher.expect(":0\r\n", "KEYNOTIFY", key, "STOP")
        self.assertEqual(len(writer.client.mqtt.messages), 0)

    async def test_forbidden_response_topic(self):
        """The store disconnects a client whose response topic is its own request topic."""
        store = await self.open("py-forbidden")
        store.responses = REQUEST_TOPIC
        # At QoS 1, aiomqtt would wait for the acknowledgement until its timeout.
        await store.send("GET", "key", qos=0)
        await store.client.lost()
