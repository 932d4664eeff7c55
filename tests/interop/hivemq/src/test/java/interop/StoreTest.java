package interop;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.datatypes.Mqtt5UserProperties;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Cases of the state store protocol. */
final class StoreTest {
    private static final String GUID = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";
    private static final String REQUEST_TOPIC = "statestore/v1/" + GUID + "/command/invoke";

    /** An array of blob strings in RESP3. */
    private static String array(String... elements) {
        var text = new StringBuilder("*" + elements.length + "\r\n");
        for (String element : elements) {
            int length = element.getBytes(StandardCharsets.UTF_8).length;
            text.append("$").append(length).append("\r\n").append(element).append("\r\n");
        }
        return text.toString();
    }

    private static String hex(String text) {
        return HexFormat.of().withUpperCase().formatHex(text.getBytes(StandardCharsets.UTF_8));
    }

    /** Compares hybrid logical clocks, {@code wall ms:counter:node id}. */
    private static boolean isLater(String left, String right) {
        String[] a = left.split(":", 3);
        String[] b = right.split(":", 3);
        for (int part = 0; part < 2; part++) {
            int order = Long.compare(Long.parseLong(a[part]), Long.parseLong(b[part]));
            if (order != 0) {
                return order > 0;
            }
        }
        return a[2].compareTo(b[2]) > 0;
    }

    /** A client of the store, on the protocol alone. */
    private static final class Store implements AutoCloseable {
        final Client client;
        final String id;
        final String notifications;
        String responses;
        private byte requests;

        Store(String id) throws IOException {
            this.id = id;
            client = Client.connected(id);
            responses = "clients/" + id + "/services/statestore/_any_/command/invoke/response";
            notifications = "clients/statestore/v1/" + GUID + "/" + hex(id) + "/command/notify";
            client.subscribe(responses, 1);
            client.subscribe(notifications + "/+", 1);
        }

        String timestamp() {
            return System.currentTimeMillis() + ":0:" + id;
        }

        Request request(String... elements) {
            return new Request(this, elements);
        }

        /** Sends a request as a deployed client does, checks the reply, and returns the version. */
        String expect(String reply, String... elements) throws InterruptedException {
            return request(elements).expect(reply);
        }

        /** Checks that the next message is this notification. */
        void notification(String key, String version, String... elements)
                throws InterruptedException {
            var message = client.next();
            assertEquals(notifications + "/" + hex(key), message.getTopic().toString());
            assertEquals(array(elements), Client.text(message));
            assertEquals(MqttQos.AT_LEAST_ONCE, message.getQos());
            assertEquals(version, user(message).get("__ts"));
        }

        @Override
        public void close() throws IOException {
            client.close();
        }
    }

    private static Map<String, String> user(Mqtt5Publish message) {
        Map<String, String> user = new LinkedHashMap<>();
        for (var property : message.getUserProperties().asList()) {
            user.put(property.getName().toString(), property.getValue().toString());
        }
        return user;
    }

    private static final class Request {
        final Store store;
        final String text;
        final byte[] correlationData = new byte[16];
        final Map<String, String> user = new LinkedHashMap<>();
        int qos = 1;

        Request(Store store, String... elements) {
            this.store = store;
            text = array(elements);
            store.requests += 1;
            Arrays.fill(correlationData, store.requests);
            user.put("__ts", store.timestamp());
            user.put("__srcId", store.id);
            user.put("__protVer", "1.0");
        }

        Request with(String name, String value) {
            user.put(name, value);
            return this;
        }

        Request without(String name) {
            user.remove(name);
            return this;
        }

        Request qos(int qos) {
            this.qos = qos;
            return this;
        }

        Request send() {
            var properties = Mqtt5UserProperties.builder();
            user.forEach(properties::add);
            store.client.mqtt.publishWith()
                    .topic(REQUEST_TOPIC)
                    .payload(text.getBytes(StandardCharsets.UTF_8))
                    .qos(MqttQos.fromCode(qos))
                    .responseTopic(store.responses)
                    .correlationData(correlationData)
                    .contentType("application/octet-stream")
                    .messageExpiryInterval(10)
                    .userProperties(properties.build())
                    .send();
            return this;
        }

        /** Checks that the next message is the response, and returns its version. */
        String response(String reply) throws InterruptedException {
            var message = store.client.next();
            assertEquals(store.responses, message.getTopic().toString());
            assertEquals(reply, Client.text(message));
            assertEquals(MqttQos.AT_LEAST_ONCE, message.getQos());
            var received = message.getCorrelationData().orElseThrow();
            assertArrayEquals(correlationData, Client.bytes(received));
            message.getContentType().ifPresent(
                    type -> assertEquals("application/octet-stream", type.toString()));
            assertEquals("200", user(message).get("__stat"));
            return user(message).get("__ts");
        }

        String expect(String reply) throws InterruptedException {
            return send().response(reply);
        }
    }

    @Test
    void setAndGet() throws Exception {
        try (var store = new Store("java-set-client"); var other = new Store("java-set-other")) {
            String key = "java-set/key";
            assertNull(store.expect("$-1\r\n", "GET", key));

            var request = store.request("SET", key, "value");
            String version = request.expect("+OK\r\n");
            assertTrue(isLater(version, request.user.get("__ts")), version);
            for (Store client : new Store[] {store, other}) {
                assertEquals(version, client.expect("$5\r\nvalue\r\n", "GET", key));
            }
            String again = other.expect("+OK\r\n", "SET", key, "");
            assertTrue(isLater(again, version), again);
            store.expect("$0\r\n\r\n", "GET", key);

            assertEquals(again, store.expect(":-1\r\n", "SET", key, "new", "NX"));
            // The dialect of the public document.
            store.request("SET", key, "new", "NX").without("__protVer").expect("-1\r\n");
            assertEquals(again, store.expect(":1\r\n", "DEL", key));
            store.expect(":0\r\n", "DEL", key);
        }
    }

    @Test
    void redelivery() throws Exception {
        try (var store = new Store("java-redelivery")) {
            var request = store.request("SET", "java-redelivery/key", "value", "NX");
            String version = request.expect("+OK\r\n");
            assertEquals(version, request.expect("+OK\r\n"));
        }
    }

    @Test
    void errors() throws Exception {
        try (var store = new Store("java-errors")) {
            String key = "java-errors/key";
            String[] set = {"SET", key, "value"};
            store.request(set).without("__ts").expect("-ERR missing timestamp\r\n");
            store.request(set).with("__ts", "now").expect("-ERR malformed timestamp\r\n");
            String qos = "-ERR the request must be published with QoS 1\r\n";
            store.request(set).qos(0).expect(qos);
            store.request(set).qos(2).expect(qos);
            store.expect("-ERR unknown command\r\n", "NONE", key);
            store.expect("-ERR the key length is zero\r\n", "GET", "");
            store.expect("$-1\r\n", "GET", key);

            store.request(set).with("__ft", store.timestamp()).expect("+OK\r\n");
            String required = "-ERR a fencing token is required for this request\r\n";
            store.expect(required, "SET", key, "other");
            String lower = "-ERR the request fencing token is a lower version than "
                    + "the fencing token protecting the resource\r\n";
            store.request("DEL", key).with("__ft", "1:0:token").expect(lower);
            store.expect("$5\r\nvalue\r\n", "GET", key);
        }
    }

    @Test
    void keyNotify() throws Exception {
        try (var watcher = new Store("java-notify-watcher");
                var writer = new Store("java-notify-writer")) {
            String key = "java-notify/key";
            assertNull(watcher.expect("+OK\r\n", "KEYNOTIFY", key));

            String version = writer.expect("+OK\r\n", "SET", key, "value");
            watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "value");
            writer.expect(":-1\r\n", "SET", key, "other", "NX");
            writer.expect("+OK\r\n", "SET", key + "/other", "value");
            writer.expect(":1\r\n", "DEL", key);
            watcher.notification(key, version, "NOTIFY", "DELETE");

            version = writer.expect("+OK\r\n", "SET", key, "brief", "PX", "100");
            watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "brief");
            watcher.notification(key, version, "NOTIFY", "DELETE");
            watcher.expect("$-1\r\n", "GET", key);

            version = writer.expect("+OK\r\n", "SET", key, "last");
            var stop = watcher.request("KEYNOTIFY", key, "STOP").send();
            watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "last");
            stop.response("+OK\r\n");
            writer.expect("+OK\r\n", "SET", key, "unwatched");
            watcher.expect("$9\r\nunwatched\r\n", "GET", key);
            watcher.expect(":0\r\n", "KEYNOTIFY", key, "STOP");
            assertFalse(writer.client.hasNext(), "a message to a client that watches nothing");
        }
    }

    /** The store disconnects a client whose response topic is its own request topic. */
    @Test
    void forbiddenResponseTopic() throws Exception {
        try (var store = new Store("java-forbidden")) {
            store.responses = REQUEST_TOPIC;
            store.request("GET", "key").qos(0).send();
            store.client.cause();
        }
    }
}
