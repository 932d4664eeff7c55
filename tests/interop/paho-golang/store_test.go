package interop

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

const (
	guid         = "FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8"
	requestTopic = "statestore/v1/" + guid + "/command/invoke"
)

// array is an array of blob strings in RESP3.
func array(elements ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(elements))
	for _, element := range elements {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(element), element)
	}
	return text
}

// isLater compares hybrid logical clocks, `wall ms:counter:node id`.
func isLater(t *testing.T, left, right string) bool {
	t.Helper()
	a, b := strings.SplitN(left, ":", 3), strings.SplitN(right, ":", 3)
	check(t, len(a) == 3 && len(b) == 3, "%q or %q is not a version", left, right)
	for part := range 2 {
		x, errX := strconv.ParseUint(a[part], 10, 64)
		y, errY := strconv.ParseUint(b[part], 10, 64)
		check(t, errX == nil && errY == nil, "%q or %q is not a version", left, right)
		if x != y {
			return x > y
		}
	}
	return a[2] > b[2]
}

// store is a client of the store, on the protocol alone.
type store struct {
	*client
	id, responses, notifications string
	requests                     byte
}

func openStore(t *testing.T, id string) *store {
	t.Helper()
	s := &store{
		client:        connect(t, id, options{}),
		id:            id,
		responses:     "clients/" + id + "/services/statestore/_any_/command/invoke/response",
		notifications: fmt.Sprintf("clients/statestore/v1/%s/%X/command/notify", guid, id),
	}
	s.subscribe(s.responses, 1)
	s.subscribe(s.notifications+"/+", 1)
	return s
}

func (s *store) timestamp() string {
	return fmt.Sprintf("%d:0:%s", time.Now().UnixMilli(), s.id)
}

// request is the PUBLISH of a request, as a deployed client sends it.
func (s *store) request(elements ...string) *paho.Publish {
	s.requests++
	return &paho.Publish{
		Topic:   requestTopic,
		QoS:     1,
		Payload: []byte(array(elements...)),
		Properties: &paho.PublishProperties{
			ResponseTopic:   s.responses,
			CorrelationData: bytes.Repeat([]byte{s.requests}, 16),
			ContentType:     "application/octet-stream",
			MessageExpiry:   paho.Uint32(10),
			User: paho.UserProperties{
				{Key: "__ts", Value: s.timestamp()},
				{Key: "__srcId", Value: s.id},
				{Key: "__protVer", Value: "1.0"},
			},
		},
	}
}

// without removes a user property of a request.
func without(packet *paho.Publish, key string) *paho.Publish {
	var rest paho.UserProperties
	for _, property := range packet.Properties.User {
		if property.Key != key {
			rest = append(rest, property)
		}
	}
	packet.Properties.User = rest
	return packet
}

// with sets a user property of a request.
func with(packet *paho.Publish, key, value string) *paho.Publish {
	without(packet, key).Properties.User.Add(key, value)
	return packet
}

// response checks that the next message is the response to this request, and
// returns its version.
func (s *store) response(request *paho.Publish, reply string) string {
	s.t.Helper()
	message := s.next("response")
	same(s.t, message.Topic, s.responses, "topic of the response")
	same(s.t, string(message.Payload), reply, fmt.Sprintf("reply to %q", request.Payload))
	same(s.t, message.QoS, 1, "QoS of the response")
	properties := message.Properties
	same(s.t, properties.CorrelationData, request.Properties.CorrelationData, "correlation data")
	if properties.ContentType != "" {
		same(s.t, properties.ContentType, "application/octet-stream", "content type")
	}
	same(s.t, properties.User.Get("__stat"), "200", "__stat")
	return properties.User.Get("__ts")
}

// expectOf sends a request and checks the reply.
func (s *store) expectOf(request *paho.Publish, reply string) string {
	s.t.Helper()
	s.publish(request)
	return s.response(request, reply)
}

func (s *store) expect(reply string, elements ...string) string {
	s.t.Helper()
	return s.expectOf(s.request(elements...), reply)
}

// notification checks that the next message is this notification.
func (s *store) notification(key, version string, elements ...string) {
	s.t.Helper()
	message := s.next("notification")
	topic := fmt.Sprintf("%s/%X", s.notifications, key)
	same(s.t, message.Topic, topic, "topic of the notification")
	same(s.t, string(message.Payload), array(elements...), "notification")
	same(s.t, message.QoS, 1, "QoS of the notification")
	same(s.t, message.Properties.User.Get("__ts"), version, "version in the notification")
}

func TestSetAndGet(t *testing.T) {
	t.Parallel()
	client, other := openStore(t, "go-set-client"), openStore(t, "go-set-other")
	const key = "go-set/key"
	same(t, client.expect("$-1\r\n", "GET", key), "", "version of an absent key")

	request := client.request("SET", key, "value")
	version := client.expectOf(request, "+OK\r\n")
	sent := request.Properties.User.Get("__ts")
	check(t, isLater(t, version, sent), "%s is not later than %s", version, sent)
	for _, client := range []*store{client, other} {
		same(t, client.expect("$5\r\nvalue\r\n", "GET", key), version, "version of the value")
	}
	next := other.expect("+OK\r\n", "SET", key, "")
	check(t, isLater(t, next, version), "%s is not later than %s", next, version)
	client.expect("$0\r\n\r\n", "GET", key)

	refused := client.expect(":-1\r\n", "SET", key, "new", "NX")
	same(t, refused, next, "version of a SET that was not applied")
	// The dialect of the public document.
	client.expectOf(without(client.request("SET", key, "new", "NX"), "__protVer"), "-1\r\n")
	same(t, client.expect(":1\r\n", "DEL", key), next, "version of the deleted value")
	client.expect(":0\r\n", "DEL", key)
}

func TestRedelivery(t *testing.T) {
	t.Parallel()
	client := openStore(t, "go-redelivery")
	request := client.request("SET", "go-redelivery/key", "value", "NX")
	version := client.expectOf(request, "+OK\r\n")
	again := client.expectOf(request, "+OK\r\n")
	same(t, again, version, "version in the response to the redelivered request")
}

func TestErrors(t *testing.T) {
	t.Parallel()
	client := openStore(t, "go-errors")
	const key = "go-errors/key"
	set := func() *paho.Publish { return client.request("SET", key, "value") }
	client.expectOf(without(set(), "__ts"), "-ERR missing timestamp\r\n")
	client.expectOf(with(set(), "__ts", "now"), "-ERR malformed timestamp\r\n")
	for _, qos := range []byte{0, 2} {
		request := set()
		request.QoS = qos
		client.expectOf(request, "-ERR the request must be published with QoS 1\r\n")
	}
	client.expect("-ERR unknown command\r\n", "NONE", key)
	client.expect("-ERR the key length is zero\r\n", "GET", "")
	client.expect("$-1\r\n", "GET", key)

	client.expectOf(with(set(), "__ft", client.timestamp()), "+OK\r\n")
	client.expect("-ERR a fencing token is required for this request\r\n", "SET", key, "other")
	lower := "-ERR the request fencing token is a lower version than " +
		"the fencing token protecting the resource\r\n"
	client.expectOf(with(client.request("DEL", key), "__ft", "1:0:token"), lower)
	client.expect("$5\r\nvalue\r\n", "GET", key)
}

func TestKeyNotify(t *testing.T) {
	t.Parallel()
	watcher, writer := openStore(t, "go-notify-watcher"), openStore(t, "go-notify-writer")
	const key = "go-notify/key"
	same(t, watcher.expect("+OK\r\n", "KEYNOTIFY", key), "", "version in the response to KEYNOTIFY")

	version := writer.expect("+OK\r\n", "SET", key, "value")
	watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "value")
	writer.expect(":-1\r\n", "SET", key, "other", "NX")
	writer.expect("+OK\r\n", "SET", key+"/other", "value")
	writer.expect(":1\r\n", "DEL", key)
	watcher.notification(key, version, "NOTIFY", "DELETE")

	version = writer.expect("+OK\r\n", "SET", key, "brief", "PX", "100")
	watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "brief")
	watcher.notification(key, version, "NOTIFY", "DELETE")
	watcher.expect("$-1\r\n", "GET", key)

	version = writer.expect("+OK\r\n", "SET", key, "last")
	stop := watcher.request("KEYNOTIFY", key, "STOP")
	watcher.publish(stop)
	watcher.notification(key, version, "NOTIFY", "SET", "VALUE", "last")
	watcher.response(stop, "+OK\r\n")
	writer.expect("+OK\r\n", "SET", key, "unwatched")
	watcher.expect("$9\r\nunwatched\r\n", "GET", key)
	watcher.expect(":0\r\n", "KEYNOTIFY", key, "STOP")
	same(t, len(writer.messages), 0, "messages to a client that watches nothing")
}

// The store disconnects a client whose response topic is its own request topic.
func TestForbiddenResponseTopic(t *testing.T) {
	t.Parallel()
	client := openStore(t, "go-forbidden")
	client.responses = requestTopic
	// The connection may end before the acknowledgement.
	_, _ = client.Publish(timely(t), client.request("GET", "key"))
	receive(t, client.Done(), "end of the connection")
}
