package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/extensions/topicaliases"
	"github.com/eclipse/paho.golang/paho/session/state"
)

const (
	sessionTakenOver   = 0x8e
	disconnectWithWill = 0x04
)

func allBytes() []byte {
	bytes := make([]byte, 256)
	for index := range bytes {
		bytes[index] = byte(index)
	}
	return bytes
}

func isPositive[T uint16 | uint32](limit *T) bool { return limit != nil && *limit > 0 }

func TestConnect(t *testing.T) {
	t.Parallel()
	first := connect(t, "go-connect", options{})
	same(t, first.connack.SessionPresent, false, "session present")
	same(t, first.connack.ReasonCode, 0, "reason code")
	limits := first.connack.Properties
	check(t, isPositive(limits.ReceiveMaximum), "no Receive Maximum")
	check(t, isPositive(limits.MaximumPacketSize), "no Maximum Packet Size")
	check(t, isPositive(limits.TopicAliasMaximum), "no Topic Alias Maximum")

	unnamed := connect(t, "", options{})
	check(t, unnamed.connack.Properties.AssignedClientID != "", "no client id was assigned")

	connect(t, "go-connect", options{})
	packet := receive(t, first.disconnected, "DISCONNECT after a takeover")
	same(t, packet.ReasonCode, sessionTakenOver, "reason code after a takeover")
	receive(t, first.Done(), "end of the connection that was taken over")
}

func TestQos(t *testing.T) {
	t.Parallel()
	subscribers := make([]*client, 3)
	for granted := range subscribers {
		subscribers[granted] = connect(t, fmt.Sprintf("go-qos-%d", granted), options{})
		subscribers[granted].subscribe("go-qos/+", byte(granted))
	}
	publisher := connect(t, "go-qos-publisher", options{})
	for sent := range subscribers {
		topic := fmt.Sprintf("go-qos/%d", sent)
		properties := &paho.PublishProperties{
			PayloadFormat:   paho.Byte(0),
			ContentType:     "application/octet-stream",
			ResponseTopic:   "go-qos/response",
			CorrelationData: allBytes(),
			User: paho.UserProperties{
				{Key: "b", Value: "1"}, {Key: "a", Value: "é"}, {Key: "b", Value: "2"},
			},
		}
		reason := publisher.publish(&paho.Publish{
			Topic: topic, Payload: allBytes(), QoS: byte(sent), Properties: properties,
		})
		same(t, reason, 0, "reason code of PUBLISH")
		for granted, subscriber := range subscribers {
			message := subscriber.next("message")
			same(t, message.Topic, topic, "topic")
			same(t, message.Payload, allBytes(), "payload")
			subject := fmt.Sprintf("QoS of %d for a subscriber with %d", sent, granted)
			same(t, int(message.QoS), min(sent, granted), subject)
			same(t, *message.Properties.PayloadFormat, 0, "payload format")
			same(t, message.Properties.ContentType, properties.ContentType, "content type")
			same(t, message.Properties.ResponseTopic, properties.ResponseTopic, "response topic")
			same(t, message.Properties.CorrelationData, properties.CorrelationData, "correlation data")
			same(t, message.Properties.User, properties.User, "user properties")
		}
	}
	unwatched := &paho.Publish{Topic: "go-qos-unwatched", QoS: 1}
	same(t, publisher.publish(unwatched), noMatchingSubscribers, "reason code without a subscriber")
	publisher.text("go-qos/last", "last")
	for _, subscriber := range subscribers {
		subscriber.nextIs("last")
	}
}

func TestRetained(t *testing.T) {
	t.Parallel()
	publisher := connect(t, "go-retained-publisher", options{})
	live := connect(t, "go-retained-live", options{})
	live.subscribe("go-retained/+", 1)
	user := paho.UserProperties{{Key: "a", Value: "b"}}
	for _, payload := range []string{"first", "second"} {
		publisher.publish(&paho.Publish{
			Topic:      "go-retained/kept",
			Payload:    []byte(payload),
			QoS:        1,
			Retain:     true,
			Properties: &paho.PublishProperties{User: user},
		})
		same(t, live.nextIs(payload).Retain, false, "retain flag for a subscriber")
	}
	late := connect(t, "go-retained-late", options{})
	late.subscribe("go-retained/+", 1)
	message := late.nextIs("second")
	same(t, message.Topic, "go-retained/kept", "topic of the retained message")
	same(t, message.Retain, true, "retain flag")
	same(t, message.QoS, 1, "QoS")
	same(t, message.Properties.User, user, "user properties")

	publisher.publish(&paho.Publish{Topic: "go-retained/kept", QoS: 1, Retain: true})
	later := connect(t, "go-retained-later", options{})
	later.subscribe("go-retained/+", 1)
	publisher.text("go-retained/other", "live")
	later.nextIs("live")
}

func TestWill(t *testing.T) {
	t.Parallel()
	watcher := connect(t, "go-will-watcher", options{})
	watcher.subscribe("go-will/+", 1)
	user := paho.UserProperties{{Key: "a", Value: "b"}}
	withWill := func(payload string) *client {
		return connect(t, "go-will", options{connect: func(packet *paho.Connect) {
			will := paho.WillMessage{Topic: "go-will/will", Payload: []byte(payload), QoS: 1}
			packet.WillMessage = &will
			// Of the properties of the message, this version of paho.golang sends only these.
			packet.WillProperties = &paho.WillProperties{User: user}
		}})
	}
	withWill("cut").cut()
	message := watcher.nextIs("cut")
	same(t, message.Topic, "go-will/will", "topic of the will")
	same(t, message.QoS, 1, "QoS of the will")
	same(t, message.Properties.User, user, "user properties of the will")

	withWill("requested").end(disconnectWithWill)
	watcher.nextIs("requested")

	withWill("removed").end(0)
	// With the same client id, a takeover before the DISCONNECT is read would publish the will.
	connect(t, "go-will-after", options{}).text("go-will/after", "after")
	watcher.nextIs("after")
}

func TestShared(t *testing.T) {
	t.Parallel()
	members := []*client{connect(t, "go-shared-a", options{}), connect(t, "go-shared-b", options{})}
	for _, member := range members {
		member.subscribe("$share/go/go-shared/jobs/+", 1)
		member.subscribe("go-shared/all", 1)
	}
	publisher := connect(t, "go-shared-publisher", options{})
	var jobs, done []string
	for job := range 20 {
		jobs = append(jobs, fmt.Sprint(100+job))
		publisher.text("go-shared/jobs/"+jobs[job], jobs[job])
	}
	publisher.text("go-shared/all", "end")
	for _, member := range members {
		before := len(done)
		for {
			message := member.next("job")
			if string(message.Payload) == "end" {
				break
			}
			done = append(done, string(message.Payload))
		}
		check(t, len(done) > before, "a member got no job")
	}
	slices.Sort(done)
	same(t, done, jobs, "jobs of all members")

	members[0].unsubscribe("$share/go/go-shared/jobs/+")
	for _, job := range []string{"x", "y"} {
		publisher.text("go-shared/jobs/"+job, job)
		members[1].nextIs(job)
	}
}

// The handler of aliases shortens topics of outgoing messages. Of incoming
// messages, the standard router knows the topic, and the message stays as it is.
func TestTopicAlias(t *testing.T) {
	t.Parallel()
	routed := make(chan *paho.Publish, 10)
	router := paho.NewStandardRouter()
	router.RegisterHandler("go-alias/aliased", func(message *paho.Publish) { routed <- message })
	subscriber := connect(t, "go-alias-in", options{
		connect: func(packet *paho.Connect) { packet.Properties.TopicAliasMaximum = paho.Uint16(5) },
		config: func(config *paho.ClientConfig) {
			config.OnPublishReceived = nil
			config.Router = router
		},
	})
	subscriber.subscribe("go-alias/+", 1)
	var sent []string
	aliases := topicaliases.NewTAHandler(5)
	publisher := connect(t, "go-alias-out", options{config: func(config *paho.ClientConfig) {
		config.PublishHook = func(packet *paho.Publish) {
			aliases.PublishHook(packet)
			sent = append(sent, packet.Topic)
		}
	}})
	var received []string
	for _, payload := range []string{"1", "2", "3"} {
		publisher.text("go-alias/aliased", payload)
		message := receive(t, routed, "message with an alias")
		same(t, string(message.Payload), payload, "payload")
		check(t, message.Properties.TopicAlias != nil, "the message has no alias")
		received = append(received, message.Topic)
	}
	topics := []string{"go-alias/aliased", "", ""}
	same(t, sent, topics, "sent topics")
	same(t, received, topics, "received topics")
}

func TestMessageExpiry(t *testing.T) {
	t.Parallel()
	session := state.NewInMemory()
	offline := connect(t, "go-expiry-offline", resuming(session))
	offline.subscribe("go-expiry/+", 1)
	offline.end(0)
	publisher := connect(t, "go-expiry-publisher", options{})
	publish := func(topic, payload string, seconds uint32, retain bool) {
		properties := &paho.PublishProperties{MessageExpiry: &seconds}
		publisher.publish(&paho.Publish{
			Topic: topic, Payload: []byte(payload), QoS: 1, Retain: retain, Properties: properties,
		})
	}
	publish("go-expiry/queued", "short", 1, false)
	publish("go-expiry/queued", "long", 60, false)
	publish("go-expiry-retained/short", "short", 1, true)
	publish("go-expiry-retained/long", "long", 60, true)
	time.Sleep(2100 * time.Millisecond)

	back := connect(t, "go-expiry-offline", resuming(session))
	late := connect(t, "go-expiry-late", options{})
	late.subscribe("go-expiry-retained/+", 1)
	for _, client := range []*client{back, late} {
		left := client.nextIs("long").Properties.MessageExpiry
		check(t, isPositive(left) && *left <= 58, "the message does not expire in 1 to 58 s")
	}
	publisher.text("go-expiry/live", "live")
	publisher.text("go-expiry-retained/live", "live")
	back.nextIs("live")
	late.nextIs("live")
}

func TestResume(t *testing.T) {
	t.Parallel()
	session := state.NewInMemory()
	first := connect(t, "go-resume", resuming(session))
	same(t, first.connack.SessionPresent, false, "session present at first")
	first.subscribe("go-resume/+", 2)
	first.end(0)
	publisher := connect(t, "go-resume-publisher", options{})
	payloads := []string{"1", "2", "3", "4"}
	for qos, topic := range map[byte]string{1: "go-resume/one", 2: "go-resume/two"} {
		for _, payload := range payloads {
			publisher.publish(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: qos})
		}
	}
	second := connect(t, "go-resume", resuming(session))
	same(t, second.connack.SessionPresent, true, "session present")
	received := map[string][]string{}
	for range 2 * len(payloads) {
		message := second.next("queued message")
		received[message.Topic] = append(received[message.Topic], string(message.Payload))
	}
	expected := map[string][]string{"go-resume/one": payloads, "go-resume/two": payloads}
	same(t, received, expected, "queued messages")
	second.end(0)

	clean := connect(t, "go-resume", options{})
	same(t, clean.connack.SessionPresent, false, "session present after Clean Start")
	clean.subscribe("go-resume/other/+", 1)
	publisher.text("go-resume/one", "lost")
	publisher.text("go-resume/other/live", "live")
	clean.nextIs("live")
}

func TestUnacknowledged(t *testing.T) {
	t.Parallel()
	session := state.NewInMemory()
	silent := resuming(session)
	silent.config = func(config *paho.ClientConfig) {
		config.Session = session
		config.EnableManualAcknowledgment = true
	}
	first := connect(t, "go-unacknowledged", silent)
	first.subscribe("go-unacknowledged/+", 1)
	publisher := connect(t, "go-unacknowledged-publisher", options{})
	publisher.text("go-unacknowledged/one", "unacknowledged")
	same(t, first.nextIs("unacknowledged").Duplicate(), false, "DUP at first")
	first.cut()
	second := connect(t, "go-unacknowledged", resuming(session))
	same(t, second.connack.SessionPresent, true, "session present")
	same(t, second.nextIs("unacknowledged").Duplicate(), true, "DUP after a redelivery")
}
