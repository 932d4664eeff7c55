package interop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperties;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5DisconnectException;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PayloadFormatIndicator;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.publish.puback.Mqtt5PubAckReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.publish.pubrec.Mqtt5PubRecReasonCode;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Cases of MQTT. */
final class MqttTest {
    private static final byte[] ALL_BYTES = new byte[256];

    static {
        for (int index = 0; index < ALL_BYTES.length; index++) {
            ALL_BYTES[index] = (byte) index;
        }
    }

    /** Resumes a session and leaves it for another minute. */
    private static final Mqtt5Connect RESUME =
            Mqtt5Connect.builder().cleanStart(false).sessionExpiryInterval(60).build();

    @Test
    void connect() throws Exception {
        try (var first = new Client("java-connect");
                var unnamed = new Client("");
                var second = new Client("java-connect")) {
            var connack = first.connect(Mqtt5Connect.builder().build());
            assertEquals(false, connack.isSessionPresent());
            var limits = connack.getRestrictions();
            assertTrue(limits.getTopicAliasMaximum() > 0, "no Topic Alias Maximum");
            assertTrue(limits.isSharedSubscriptionAvailable(), "no shared subscriptions");
            assertEquals(MqttQos.EXACTLY_ONCE, limits.getMaximumQos());

            var assigned = unnamed.connect(Mqtt5Connect.builder().build());
            assertTrue(assigned.getAssignedClientIdentifier().isPresent(), "no id was assigned");

            second.connect(Mqtt5Connect.builder().build());
            var cause = assertInstanceOf(Mqtt5DisconnectException.class, first.cause());
            var reason = cause.getMqttMessage().getReasonCode();
            assertEquals(Mqtt5DisconnectReasonCode.SESSION_TAKEN_OVER, reason);
        }
    }

    @Test
    void qos() throws Exception {
        try (var zero = Client.connected("java-qos-0");
                var one = Client.connected("java-qos-1");
                var two = Client.connected("java-qos-2");
                var publisher = Client.connected("java-qos-publisher")) {
            List<Client> subscribers = List.of(zero, one, two);
            for (int granted = 0; granted < 3; granted++) {
                subscribers.get(granted).subscribe("java-qos/+", granted);
            }
            var user = Mqtt5UserProperties.builder();
            user.add("b", "1").add("a", "é").add("b", "2");
            for (int qos = 0; qos < 3; qos++) {
                var message = Mqtt5Publish.builder()
                        .topic("java-qos/" + qos)
                        .qos(MqttQos.fromCode(qos))
                        .payload(ALL_BYTES)
                        .payloadFormatIndicator(Mqtt5PayloadFormatIndicator.UNSPECIFIED)
                        .contentType("application/octet-stream")
                        .responseTopic("java-qos/response")
                        .correlationData(ALL_BYTES)
                        .userProperties(user.build())
                        .build();
                checkSuccess(qos, publisher.mqtt.publish(message));
                for (int granted = 0; granted < 3; granted++) {
                    var received = subscribers.get(granted).next();
                    assertEquals(message.getTopic(), received.getTopic());
                    assertArrayEquals(ALL_BYTES, received.getPayloadAsBytes());
                    assertEquals(Math.min(qos, granted), received.getQos().getCode());
                    var format = received.getPayloadFormatIndicator();
                    assertEquals(message.getPayloadFormatIndicator(), format);
                    assertEquals(message.getContentType(), received.getContentType());
                    assertEquals(message.getResponseTopic(), received.getResponseTopic());
                    assertEquals(message.getCorrelationData(), received.getCorrelationData());
                    assertEquals(message.getUserProperties(), received.getUserProperties());
                }
            }
            var unwatched = assertInstanceOf(
                    Mqtt5PublishResult.Mqtt5Qos1Result.class, publisher.publish("java-none", ""));
            var reason = unwatched.getPubAck().getReasonCode();
            assertEquals(Mqtt5PubAckReasonCode.NO_MATCHING_SUBSCRIBERS, reason);
            publisher.publish("java-qos/last", "last");
            for (Client subscriber : subscribers) {
                subscriber.next("last");
            }
        }
    }

    private static void checkSuccess(int qos, Mqtt5PublishResult result) {
        if (qos == 1) {
            var one = assertInstanceOf(Mqtt5PublishResult.Mqtt5Qos1Result.class, result);
            assertEquals(Mqtt5PubAckReasonCode.SUCCESS, one.getPubAck().getReasonCode());
        } else if (qos == 2) {
            var two = assertInstanceOf(Mqtt5PublishResult.Mqtt5Qos2Result.class, result);
            assertEquals(Mqtt5PubRecReasonCode.SUCCESS, two.getPubRec().getReasonCode());
        }
    }

    @Test
    void retained() throws Exception {
        try (var publisher = Client.connected("java-retained-publisher");
                var live = Client.connected("java-retained-live");
                var late = Client.connected("java-retained-late");
                var later = Client.connected("java-retained-later")) {
            live.subscribe("java-retained/+", 1);
            for (String payload : List.of("first", "second")) {
                publisher.publish("java-retained/kept", payload, 1, true);
                assertEquals(false, live.next(payload).isRetain());
            }
            late.subscribe("java-retained/+", 1);
            var message = late.next("second");
            assertEquals("java-retained/kept", message.getTopic().toString());
            assertEquals(true, message.isRetain());
            assertEquals(MqttQos.AT_LEAST_ONCE, message.getQos());

            publisher.publish("java-retained/kept", "", 1, true);
            later.subscribe("java-retained/+", 1);
            publisher.publish("java-retained/other", "live");
            later.next("live");
        }
    }

    @Test
    void will() throws Exception {
        var user = Mqtt5UserProperties.builder().add("a", "b").build();
        try (var watcher = Client.connected("java-will-watcher");
                var client = new Client("java-will");
                var after = new Client("java-will-after")) {
            watcher.subscribe("java-will/+", 1);
            client.connect(will("cut", user));
            client.cut();
            var message = watcher.next("cut");
            assertEquals("java-will/will", message.getTopic().toString());
            assertEquals(MqttQos.AT_LEAST_ONCE, message.getQos());
            assertEquals("text/plain", message.getContentType().orElseThrow().toString());
            assertEquals(user, message.getUserProperties());

            client.connect(will("requested", user));
            client.end(Mqtt5DisconnectReasonCode.DISCONNECT_WITH_WILL_MESSAGE);
            watcher.next("requested");

            client.connect(will("removed", user));
            client.end();
            // With the same client id, a takeover before the DISCONNECT is read would publish the will.
            after.connect(Mqtt5Connect.builder().build());
            after.publish("java-will/after", "after");
            watcher.next("after");
        }
    }

    private static Mqtt5Connect will(String payload, Mqtt5UserProperties user) {
        var will = Mqtt5Publish.builder()
                .topic("java-will/will")
                .payload(payload.getBytes())
                .qos(MqttQos.AT_LEAST_ONCE)
                .contentType("text/plain")
                .userProperties(user)
                .build();
        return Mqtt5Connect.builder().willPublish(will).build();
    }

    @Test
    void shared() throws Exception {
        try (var a = Client.connected("java-shared-a");
                var b = Client.connected("java-shared-b");
                var publisher = Client.connected("java-shared-publisher")) {
            for (Client member : List.of(a, b)) {
                member.subscribe("$share/java/java-shared/jobs/+", 1);
                member.subscribe("java-shared/all", 1);
            }
            List<String> jobs =
                    IntStream.range(100, 120).mapToObj(Integer::toString).toList();
            for (String job : jobs) {
                publisher.publish("java-shared/jobs/" + job, job);
            }
            publisher.publish("java-shared/all", "end");
            List<String> done = new ArrayList<>();
            for (Client member : List.of(a, b)) {
                int before = done.size();
                for (String job = Client.text(member.next());
                        !job.equals("end");
                        job = Client.text(member.next())) {
                    done.add(job);
                }
                assertTrue(done.size() > before, "a member got no job");
            }
            assertEquals(jobs, done.stream().sorted().toList());

            a.unsubscribe("$share/java/java-shared/jobs/+");
            for (String job : List.of("x", "y")) {
                publisher.publish("java-shared/jobs/" + job, job);
                b.next(job);
            }
        }
    }

    /** The client assigns aliases by itself. Only the bytes on the connection show them. */
    @Test
    void topicAlias() throws Exception {
        try (var subscriber = new Client("java-alias-in");
                var publisher = Client.connected("java-alias-out")) {
            var restrictions = Mqtt5Connect.builder().restrictions().topicAliasMaximum(5);
            subscriber.connect(restrictions.applyRestrictions().build());
            subscriber.subscribe("java-alias/+", 1);
            for (String payload : List.of("1", "2", "3")) {
                publisher.publish("java-alias/aliased", payload);
                var message = subscriber.next(payload);
                assertEquals("java-alias/aliased", message.getTopic().toString());
            }
            assertEquals(1, publisher.relay.countSent("java-alias/aliased"));
            assertEquals(1, subscriber.relay.countReceived("java-alias/aliased"));
        }
    }

    @Test
    void messageExpiry() throws Exception {
        try (var offline = new Client("java-expiry-offline");
                var publisher = Client.connected("java-expiry-publisher");
                var late = Client.connected("java-expiry-late")) {
            offline.connect(RESUME);
            offline.subscribe("java-expiry/+", 1);
            offline.end();
            for (String topic : List.of("java-expiry", "java-expiry-retained")) {
                boolean retain = topic.endsWith("retained");
                publishExpiring(publisher, topic + "/short", "short", 1, retain);
                publishExpiring(publisher, topic + "/long", "long", 60, retain);
            }
            Thread.sleep(2_100);

            offline.connect(RESUME);
            late.subscribe("java-expiry-retained/+", 1);
            for (Client client : List.of(offline, late)) {
                long left = client.next("long").getMessageExpiryInterval().orElseThrow();
                assertTrue(left > 0 && left <= 58, "expires in " + left + " s, expected 58 s");
            }
            for (String topic : List.of("java-expiry", "java-expiry-retained")) {
                publisher.publish(topic + "/live", "live");
            }
            for (Client client : List.of(offline, late)) {
                client.next("live");
            }
        }
    }

    private static void publishExpiring(
            Client client, String topic, String payload, long seconds, boolean retain) {
        client.mqtt.publishWith()
                .topic(topic)
                .payload(payload.getBytes())
                .qos(MqttQos.AT_LEAST_ONCE)
                .retain(retain)
                .messageExpiryInterval(seconds)
                .send();
    }

    @Test
    void resume() throws Exception {
        try (var client = new Client("java-resume");
                var publisher = Client.connected("java-resume-publisher")) {
            assertEquals(false, client.connect(RESUME).isSessionPresent());
            client.subscribe("java-resume/+", 2);
            client.end();
            List<String> payloads = List.of("1", "2", "3", "4");
            for (int qos = 1; qos < 3; qos++) {
                for (String payload : payloads) {
                    publisher.publish("java-resume/" + qos, payload, qos, false);
                }
            }
            assertEquals(true, client.connect(RESUME).isSessionPresent());
            List<String> one = new ArrayList<>();
            List<String> two = new ArrayList<>();
            for (int count = 0; count < 2 * payloads.size(); count++) {
                var message = client.next();
                boolean isOne = message.getTopic().toString().endsWith("1");
                (isOne ? one : two).add(Client.text(message));
            }
            assertEquals(payloads, one);
            assertEquals(payloads, two);
            client.end();
        }
        try (var clean = Client.connected("java-resume");
                var publisher = Client.connected("java-resume-publisher")) {
            clean.subscribe("java-resume/other/+", 1);
            publisher.publish("java-resume/1", "lost");
            publisher.publish("java-resume/other/live", "live");
            clean.next("live");
        }
    }

    /** The client does not show the DUP flag. */
    @Test
    void unacknowledged() throws Exception {
        try (var client = new Client("java-unacknowledged");
                var publisher = Client.connected("java-unacknowledged-publisher")) {
            client.connect(RESUME, true);
            client.subscribe("java-unacknowledged/+", 1);
            publisher.publish("java-unacknowledged/1", "unacknowledged");
            client.next("unacknowledged");
            client.cut();
            assertEquals(true, client.connect(RESUME).isSessionPresent());
            client.next("unacknowledged");
        }
    }
}
