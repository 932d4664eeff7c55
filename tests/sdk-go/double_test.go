package sdkgo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
)

// double is a store of this program beside mosquitto, with a fault.
type double struct {
	fault string
	clock *hlc.Global

	mu       sync.Mutex
	requests int
	now, old map[string]stored
	// again is a SET for the fault "twice".
	again []string
}

type stored struct{ value, version string }

// execute returns the payload and the version of a response.
func (d *double) execute(words []string) (string, string) {
	verb, key := words[0], words[1]
	found, present := d.now[key]
	// Once in twenty requests.
	faulty := func(fault string) bool { return d.fault == fault && d.requests%20 == 0 }
	switch {
	case verb == "GET":
		if old, ok := d.old[key]; ok && faulty("stale") {
			found, present = old, true
		}
		if !present {
			return "$-1", ""
		}
		return fmt.Sprintf("$%d\r\n%s", len(found.value), found.value), found.version
	case verb == "SET":
		condition := strings.Join(words[3:], " ")
		refuses := condition == "NX" && !faulty("unconditional") || condition == "NEX" && found.value != words[2]
		if present && refuses {
			return ":-1", found.version
		}
		version, err := d.clock.Get()
		if err != nil {
			panic(err)
		}
		if !faulty("lost") {
			d.old[key], d.now[key] = found, stored{words[2], version.String()}
		}
		d.again = words
		return "+OK", version.String()
	case !present:
		return ":0", ""
	case verb == "VDEL" && found.value != words[2]:
		return ":-1", found.version
	}
	delete(d.now, key)
	return ":1", found.version
}

func (d *double) handle(t *testing.T, session *mqtt.SessionClient, message *mqtt.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var words []string
	// Between the elements are their lengths. No element of this test contains a line break.
	for number, line := range strings.Split(string(message.Payload), "\r\n") {
		if number > 0 && number%2 == 0 {
			words = append(words, line)
		}
	}
	d.requests++
	payload, version := d.execute(words)
	if d.fault == "twice" && d.requests%20 == 10 && d.again != nil {
		d.execute(d.again)
	}
	properties := mqtt.WithUserProperties{"__stat": "200", "__protVer": "1.0"}
	if version != "" {
		properties["__ts"] = version
	}
	_, err := session.Publish(context.Background(), message.ResponseTopic, []byte(payload+"\r\n"),
		mqtt.WithQoS(1), mqtt.WithCorrelationData(message.CorrelationData), properties)
	if err != nil && t.Context().Err() == nil {
		t.Errorf("double: %v", err)
	}
	message.Ack()
}

// startDouble starts a double, and returns its broker.
func startDouble(t *testing.T, fault string) place {
	t.Helper()
	broker := startMosquitto(t)
	store := session(t, "double", mqtt.TCPConnection("127.0.0.1", broker.port))
	d := &double{fault: fault, clock: hlc.New(), now: map[string]stored{}, old: map[string]stored{}}
	const topic = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"
	forget := store.RegisterMessageHandler(func(_ context.Context, message *mqtt.Message) {
		if message.Topic == topic {
			d.handle(t, store, message)
		}
	})
	t.Cleanup(forget)
	if _, err := store.Subscribe(timely(t), topic, mqtt.WithQoS(1)); err != nil {
		t.Fatal(err)
	}
	return broker
}

func TestABrokenStoreIsCaught(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		clients(t, startDouble(t, ""), 2*time.Second, nil, asks).passes(registers)
	})
	for _, fault := range []string{"stale", "lost", "twice", "unconditional"} {
		t.Run(fault, func(t *testing.T) {
			at := startDouble(t, fault)
			caught(t, registers, func() *history { return clients(t, at, time.Second, nil, asks) })
		})
	}
}
