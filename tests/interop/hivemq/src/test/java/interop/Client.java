package interop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.hivemq.client.mqtt.MqttClientState;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient.Mqtt5Publishes;
import com.hivemq.client.mqtt.mqtt5.Mqtt5Client;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAck;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5DisconnectReasonCode;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A client that connects over a relay and queues its messages. */
final class Client implements AutoCloseable {
    /** Seconds. Far above the time of each operation. */
    private static final long LIMIT = 15;

    final Relay relay;
    final Mqtt5BlockingClient mqtt;
    /** The cause of each disconnection. */
    final BlockingQueue<Throwable> causes = new LinkedBlockingQueue<>();
    private Mqtt5Publishes publishes;

    Client(String id) throws IOException {
        String host = environment("INTEROP_HOST");
        relay = new Relay(host, Integer.parseInt(environment("INTEROP_PORT")));
        mqtt = Mqtt5Client.builder()
                .identifier(id)
                .serverHost("127.0.0.1")
                .serverPort(relay.port())
                .addDisconnectedListener(context -> causes.add(context.getCause()))
                .buildBlocking();
    }

    /** Connects with Clean Start. */
    static Client connected(String id) throws IOException {
        Client client = new Client(id);
        assertEquals(false, client.connect(Mqtt5Connect.builder().build()).isSessionPresent());
        return client;
    }

    private static String environment(String name) {
        String value = System.getenv(name);
        assertTrue(value != null, name + " is not set");
        return value;
    }

    Mqtt5ConnAck connect(Mqtt5Connect connect) {
        return connect(connect, false);
    }

    /** With manual acknowledgement, no message is acknowledged here. */
    Mqtt5ConnAck connect(Mqtt5Connect connect, boolean manualAcknowledgement) {
        // Before the connection, so that messages of a resumed session arrive here.
        publishes = mqtt.publishes(MqttGlobalPublishFilter.ALL, manualAcknowledgement);
        return mqtt.connect(connect);
    }

    void subscribe(String filter, int qos) {
        var suback = mqtt.subscribeWith().topicFilter(filter).qos(MqttQos.fromCode(qos)).send();
        assertEquals(qos, suback.getReasonCodes().get(0).getCode(), "granted QoS of " + filter);
    }

    void unsubscribe(String filter) {
        mqtt.unsubscribeWith().topicFilter(filter).send();
    }

    Mqtt5PublishResult publish(String topic, String payload) {
        return publish(topic, payload, 1, false);
    }

    Mqtt5PublishResult publish(String topic, String payload, int qos, boolean retain) {
        return mqtt.publishWith()
                .topic(topic)
                .payload(payload.getBytes(StandardCharsets.UTF_8))
                .qos(MqttQos.fromCode(qos))
                .retain(retain)
                .send();
    }

    Mqtt5Publish next() throws InterruptedException {
        return publishes.receive(LIMIT, TimeUnit.SECONDS).orElseThrow(() ->
                new AssertionError("no message in " + LIMIT + " s"));
    }

    Mqtt5Publish next(String payload) throws InterruptedException {
        Mqtt5Publish message = next();
        assertEquals(payload, text(message));
        return message;
    }

    boolean hasNext() {
        return publishes.receiveNow().isPresent();
    }

    /** Ends the connection with DISCONNECT. */
    void end(Mqtt5DisconnectReasonCode reason) throws InterruptedException {
        mqtt.disconnectWith().reasonCode(reason).send();
        cause();
    }

    void end() throws InterruptedException {
        end(Mqtt5DisconnectReasonCode.NORMAL_DISCONNECTION);
    }

    /** Ends the connection without DISCONNECT. */
    void cut() throws IOException, InterruptedException {
        relay.cut();
        cause();
    }

    /** Waits for the end of the connection, and returns its cause. */
    Throwable cause() throws InterruptedException {
        Throwable cause = causes.poll(LIMIT, TimeUnit.SECONDS);
        assertTrue(cause != null, "the connection did not end in " + LIMIT + " s");
        // The client reports the end before it can connect again.
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(LIMIT);
        while (mqtt.getState() != MqttClientState.DISCONNECTED) {
            assertTrue(System.nanoTime() < deadline, "the client did not end the connection");
            Thread.sleep(1);
        }
        return cause;
    }

    @Override
    public void close() throws IOException {
        relay.close();
    }

    static String text(Mqtt5Publish message) {
        return new String(message.getPayloadAsBytes(), StandardCharsets.UTF_8);
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }
}
