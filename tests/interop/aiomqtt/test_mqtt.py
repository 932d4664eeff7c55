"""Cases of MQTT."""

import asyncio

import aiomqtt
from paho.mqtt.packettypes import PacketTypes

from client import Case, of_publish, properties

SESSION_TAKEN_OVER = 0x8E
ALL_BYTES = bytes(range(256))


class Mqtt(Case):
    async def test_connect(self):
        first = await self.connect("py-connect")
        self.assertFalse(first.session_present)
        self.assertGreater(first.connack.ReceiveMaximum, 0)
        self.assertGreater(first.connack.MaximumPacketSize, 0)
        self.assertGreater(first.connack.TopicAliasMaximum, 0)

        unnamed = await self.connect("")
        self.assertNotEqual(unnamed.connack.AssignedClientIdentifier, "")

        await self.connect("py-connect")
        self.assertEqual((await first.lost()).rc.value, SESSION_TAKEN_OVER)

    async def test_qos(self):
        subscribers = []
        for granted in range(3):
            subscriber = await self.connect(f"py-qos-{granted}")
            await subscriber.subscribe("py-qos/+", granted)
            subscribers.append(subscriber)
        publisher = await self.connect("py-qos-publisher")
        values = {
            "PayloadFormatIndicator": 0,
            "ContentType": "application/octet-stream",
            "ResponseTopic": "py-qos/response",
            "CorrelationData": ALL_BYTES,
            "UserProperty": [("b", "1"), ("a", "é"), ("b", "2")],
        }
        for qos in range(3):
            sent = of_publish(**values)
            await publisher.publish(f"py-qos/{qos}", ALL_BYTES, qos, properties=sent)
            for granted, subscriber in enumerate(subscribers):
                message = await subscriber.next()
                self.assertEqual(message.topic.value, f"py-qos/{qos}")
                self.assertEqual(message.payload, ALL_BYTES)
                self.assertEqual(message.qos, min(qos, granted))
                for name, value in values.items():
                    self.assertEqual(getattr(message.properties, name), value, name)
        await publisher.publish("py-qos/last", "last")
        for subscriber in subscribers:
            self.assertEqual(await subscriber.next_payload(), "last")

    async def test_retained(self):
        publisher = await self.connect("py-retained-publisher")
        live = await self.connect("py-retained-live")
        await live.subscribe("py-retained/+", 1)
        user = [("a", "b")]
        for payload in ["first", "second"]:
            values = of_publish(UserProperty=user)
            await publisher.publish("py-retained/kept", payload, retain=True, properties=values)
            message = await live.next()
            self.assertEqual((message.payload.decode(), message.retain), (payload, False))

        late = await self.connect("py-retained-late")
        await late.subscribe("py-retained/+", 1)
        message = await late.next()
        self.assertEqual((message.topic.value, message.payload), ("py-retained/kept", b"second"))
        self.assertEqual((message.retain, message.qos), (True, 1))
        self.assertEqual(message.properties.UserProperty, user)

        await publisher.publish("py-retained/kept", b"", retain=True)
        later = await self.connect("py-retained-later")
        await later.subscribe("py-retained/+", 1)
        await publisher.publish("py-retained/other", "live")
        self.assertEqual(await later.next_payload(), "live")

    async def test_will(self):
        watcher = await self.connect("py-will-watcher")
        await watcher.subscribe("py-will/+", 1)
        user = [("a", "b")]

        def will(payload):
            values = properties(
                PacketTypes.WILLMESSAGE, ContentType="text/plain", UserProperty=user
            )
            return aiomqtt.Will("py-will/will", payload, qos=1, properties=values)

        await (await self.connect("py-will", will=will("cut"))).cut()
        message = await watcher.next()
        self.assertEqual((message.topic.value, message.payload), ("py-will/will", b"cut"))
        self.assertEqual(message.qos, 1)
        self.assertEqual(message.properties.ContentType, "text/plain")
        self.assertEqual(message.properties.UserProperty, user)

        await (await self.connect("py-will", will=will("removed"))).end()
        # With the same client id, a takeover before the DISCONNECT is read would publish the
        # will.
        after = await self.connect("py-will-after")
        await after.publish("py-will/after", "after")
        self.assertEqual(await watcher.next_payload(), "after")

    async def test_shared(self):
        members = [await self.connect(f"py-shared-{name}") for name in "ab"]
        for member in members:
            await member.subscribe("$share/py/py-shared/jobs/+", 1)
            await member.subscribe("py-shared/all", 1)
        publisher = await self.connect("py-shared-publisher")
        jobs = [str(100 + index) for index in range(20)]
        for job in jobs:
            await publisher.publish(f"py-shared/jobs/{job}", job)
        await publisher.publish("py-shared/all", "end")
        done = []
        for member in members:
            before = len(done)
            while (job := await member.next_payload()) != "end":
                done.append(job)
            self.assertGreater(len(done), before, "a member got no job")
        self.assertEqual(sorted(done), jobs)

        await members[0].mqtt.unsubscribe("$share/py/py-shared/jobs/+")
        for job in ["x", "y"]:
            await publisher.publish(f"py-shared/jobs/{job}", job)
            self.assertEqual(await members[1].next_payload(), job)

    async def test_topic_alias(self):
        subscriber = await self.connect("py-alias-in")
        await subscriber.subscribe("py-alias/+", 1)
        publisher = await self.connect("py-alias-out")
        for topic, payload in [("py-alias/aliased", "1"), ("", "2"), ("", "3")]:
            await publisher.publish(topic, payload, properties=of_publish(TopicAlias=1))
            message = await subscriber.next()
            self.assertEqual(message.topic.value, "py-alias/aliased")
            self.assertEqual(message.payload.decode(), payload)

    async def test_message_expiry(self):
        session = {"session_expiry": 60, "clean": False}
        offline = await self.connect("py-expiry-offline", **session)
        await offline.subscribe("py-expiry/+", 1)
        await offline.end()
        publisher = await self.connect("py-expiry-publisher")
        for topic, retain in [("py-expiry", False), ("py-expiry-retained", True)]:
            for payload, seconds in [("short", 1), ("long", 60)]:
                values = of_publish(MessageExpiryInterval=seconds)
                await publisher.publish(
                    f"{topic}/{payload}", payload, retain=retain, properties=values
                )
        await asyncio.sleep(2.1)

        back = await self.connect("py-expiry-offline", **session)
        late = await self.connect("py-expiry-late")
        await late.subscribe("py-expiry-retained/+", 1)
        for client in [back, late]:
            message = await client.next()
            self.assertEqual(message.payload, b"long")
            self.assertIn(message.properties.MessageExpiryInterval, range(1, 59))
        for topic in ["py-expiry", "py-expiry-retained"]:
            await publisher.publish(f"{topic}/live", "live")
        for client in [back, late]:
            self.assertEqual(await client.next_payload(), "live")

    async def test_resume(self):
        session = {"session_expiry": 60, "clean": False}
        first = await self.connect("py-resume", **session)
        self.assertFalse(first.session_present)
        await first.subscribe("py-resume/+", 2)
        await first.end()
        publisher = await self.connect("py-resume-publisher")
        payloads = ["1", "2", "3", "4"]
        for qos in [1, 2]:
            for payload in payloads:
                await publisher.publish(f"py-resume/{qos}", payload, qos)

        second = await self.connect("py-resume", **session)
        self.assertTrue(second.session_present)
        received = {"py-resume/1": [], "py-resume/2": []}
        for _ in range(2 * len(payloads)):
            message = await second.next()
            received[message.topic.value].append(message.payload.decode())
        self.assertEqual(received, {"py-resume/1": payloads, "py-resume/2": payloads})
        await second.end()

        clean = await self.connect("py-resume")
        self.assertFalse(clean.session_present)
        await clean.subscribe("py-resume/other/+", 1)
        await publisher.publish("py-resume/1", "lost")
        await publisher.publish("py-resume/other/live", "live")
        self.assertEqual(await clean.next_payload(), "live")

    async def test_unacknowledged(self):
        session = {"session_expiry": 60, "clean": False}
        first = await self.connect("py-unacknowledged", **session)
        first.paho.manual_ack_set(True)
        await first.subscribe("py-unacknowledged/+", 1)
        publisher = await self.connect("py-unacknowledged-publisher")
        await publisher.publish("py-unacknowledged/one", "unacknowledged")
        self.assertEqual(await first.next_payload(), "unacknowledged")
        await first.cut()
        second = await self.connect("py-unacknowledged", **session)
        self.assertTrue(second.session_present)
        self.assertEqual(await second.next_payload(), "unacknowledged")
