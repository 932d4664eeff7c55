// Package interop runs cases of MQTT and of the state store protocol with
// paho.golang. The README of the folder above describes them.
package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
)

// limit is far above the time of each operation.
const limit = 15 * time.Second

const noMatchingSubscribers = 0x10

// client is a connection that queues its messages.
type client struct {
	*paho.Client
	t            *testing.T
	conn         net.Conn
	connack      *paho.Connack
	messages     chan *paho.Publish
	disconnected chan *paho.Disconnect
}

// options are what a case changes of a connection.
type options struct {
	connect func(*paho.Connect)
	config  func(*paho.ClientConfig)
}

// resuming are the options of a connection that resumes a session and leaves it
// for another minute.
func resuming(session session.SessionManager) options {
	return options{
		connect: func(connect *paho.Connect) {
			connect.CleanStart = false
			connect.Properties.SessionExpiryInterval = paho.Uint32(60)
		},
		config: func(config *paho.ClientConfig) { config.Session = session },
	}
}

func connect(t *testing.T, id string, options options) *client {
	t.Helper()
	address := net.JoinHostPort(os.Getenv("INTEROP_HOST"), os.Getenv("INTEROP_PORT"))
	conn, err := net.DialTimeout("tcp", address, limit)
	if err != nil {
		t.Fatalf("cannot connect to INTEROP_HOST and INTEROP_PORT: %v", err)
	}
	c := &client{
		t:            t,
		conn:         conn,
		messages:     make(chan *paho.Publish, 1000),
		disconnected: make(chan *paho.Disconnect, 1),
	}
	config := paho.ClientConfig{
		Conn: conn,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(received paho.PublishReceived) (bool, error) {
				c.messages <- received.Packet
				return true, nil
			},
		},
		OnServerDisconnect: func(packet *paho.Disconnect) { c.disconnected <- packet },
	}
	if options.config != nil {
		options.config(&config)
	}
	packet := &paho.Connect{
		ClientID:   id,
		CleanStart: true,
		KeepAlive:  30,
		Properties: &paho.ConnectProperties{RequestProblemInfo: true},
	}
	if options.connect != nil {
		options.connect(packet)
	}
	c.Client = paho.NewClient(config)
	t.Cleanup(func() { _ = conn.Close() })
	if c.connack, err = c.Connect(timely(t), packet); err != nil {
		t.Fatalf("CONNECT of %s: %v", id, err)
	}
	return c
}

// timely is a context for calls that must not hang.
func timely(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// end closes the connection with DISCONNECT.
func (c *client) end(reason byte) {
	c.t.Helper()
	if err := c.Disconnect(&paho.Disconnect{ReasonCode: reason}); err != nil {
		c.t.Fatalf("DISCONNECT: %v", err)
	}
}

// cut closes the connection without DISCONNECT.
func (c *client) cut() {
	c.t.Helper()
	_ = c.conn.Close()
	receive(c.t, c.Done(), "end of the connection")
}

func (c *client) subscribe(filter string, qos byte) {
	c.t.Helper()
	subscriptions := []paho.SubscribeOptions{{Topic: filter, QoS: qos}}
	suback, err := c.Subscribe(timely(c.t), &paho.Subscribe{Subscriptions: subscriptions})
	if err != nil {
		c.t.Fatalf("SUBSCRIBE to %s: %v", filter, err)
	}
	same(c.t, suback.Reasons, []byte{qos}, "granted QoS of "+filter)
}

func (c *client) unsubscribe(filter string) {
	c.t.Helper()
	if _, err := c.Unsubscribe(timely(c.t), &paho.Unsubscribe{Topics: []string{filter}}); err != nil {
		c.t.Fatalf("UNSUBSCRIBE from %s: %v", filter, err)
	}
}

// publish waits for the acknowledgement of a message, and returns its reason
// code: success, or that no subscriber matches.
func (c *client) publish(packet *paho.Publish) byte {
	c.t.Helper()
	response, err := c.Publish(timely(c.t), packet)
	if err != nil {
		c.t.Fatalf("PUBLISH to %s: %v", packet.Topic, err)
	}
	isSuccess := response.ReasonCode == 0 || response.ReasonCode == noMatchingSubscribers
	check(c.t, isSuccess, "reason code %#x of PUBLISH to %s", response.ReasonCode, packet.Topic)
	return response.ReasonCode
}

// text publishes a short message at QoS 1.
func (c *client) text(topic, payload string) {
	c.t.Helper()
	c.publish(&paho.Publish{Topic: topic, Payload: []byte(payload), QoS: 1})
}

func (c *client) next(subject string) *paho.Publish {
	c.t.Helper()
	return receive(c.t, c.messages, subject)
}

// nextIs checks the payload of the next message.
func (c *client) nextIs(payload string) *paho.Publish {
	c.t.Helper()
	message := c.next("message " + payload)
	same(c.t, string(message.Payload), payload, "payload of the next message")
	return message
}

// receive takes the next element of a channel. A closed channel is an element
// for channels that only close.
func receive[T any](t *testing.T, from <-chan T, subject string) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(limit):
		t.Fatalf("no %s in %s", subject, limit)
	}
	panic("unreachable")
}

func same[T any](t *testing.T, actual, expected T, subject string) {
	t.Helper()
	if !reflect.DeepEqual(actual, expected) {
		t.Fatalf("%s is %s, expected %s", subject, show(actual), show(expected))
	}
}

func check(t *testing.T, condition bool, format string, arguments ...any) {
	t.Helper()
	if !condition {
		t.Fatalf(format, arguments...)
	}
}

func show(value any) string {
	if text, ok := value.(string); ok {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%+v", value)
}
