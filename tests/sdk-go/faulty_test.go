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

// double is a store with a fault in one of twenty requests.
type double struct {
	fault    string
	clock    *hlc.Global
	requests int
	now, old map[string]stored
	lastSet  []string
}

type stored struct{ value, version string }

// execute returns the payload and the version of a response.
func (d *double) execute(words []string) (string, string) {
	verb, key := words[0], words[1]
	found, present := d.now[key]
	isFaulty := d.requests%20 == 0
	switch {
	case verb == "GET":
		if old, ok := d.old[key]; ok && isFaulty && d.fault == "stale" {
			found, present = old, true
		}
		if !present {
			return "$-1", ""
		}
		return fmt.Sprintf("$%d\r\n%s", len(found.value), found.value), found.version
	case verb == "SET":
		condition := strings.Join(words[3:], "")
		if present && (condition == "NX" || condition == "NEX" && found.value != words[2]) {
			return ":-1", found.version
		}
		version, err := d.clock.Get()
		if err != nil {
			panic(err)
		}
		if !isFaulty || d.fault != "lost" {
			d.old[key], d.now[key] = found, stored{words[2], version.String()}
		}
		d.lastSet = words
		return "+OK", version.String()
	case !present:
		return ":0", ""
	case verb == "VDEL" && found.value != words[2]:
		return ":-1", found.version
	}
	delete(d.now, key)
	return ":1", found.version
}

// startDouble starts a double beside mosquitto.
func startDouble(t *testing.T, fault string) place {
	t.Helper()
	broker := startMosquitto(t)
	client := session(t, "double", mqtt.TCPConnection("127.0.0.1", broker.port))
	d := &double{fault: fault, clock: hlc.New(), now: map[string]stored{}, old: map[string]stored{}}
	// The SDK handles messages at the same time.
	var mu sync.Mutex
	t.Cleanup(client.RegisterMessageHandler(func(_ context.Context, message *mqtt.Message) {
		mu.Lock()
		defer mu.Unlock()
		defer message.Ack()
		var words []string
		for number, line := range strings.Split(string(message.Payload), "\r\n") {
			// The other lines are lengths.
			if number > 0 && number%2 == 0 {
				words = append(words, line)
			}
		}
		d.requests++
		payload, version := d.execute(words)
		if d.fault == "twice" && d.requests%20 == 0 && d.lastSet != nil {
			d.execute(d.lastSet)
		}
		properties := mqtt.WithUserProperties{"__stat": "200", "__protVer": "1.0"}
		if version != "" {
			properties["__ts"] = version
		}
		_, _ = client.Publish(t.Context(), message.ResponseTopic, []byte(payload+"\r\n"),
			mqtt.WithQoS(1), mqtt.WithCorrelationData(message.CorrelationData), properties)
	}))
	const topic = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke"
	if _, err := client.Subscribe(timely(t), topic, mqtt.WithQoS(1)); err != nil {
		t.Fatal(err)
	}
	return broker
}

func TestABrokenStoreIsCaught(t *testing.T) {
	t.Run("none", func(t *testing.T) {
		clients(t, startDouble(t, ""), 2*time.Second, nil, asks).passes(registers)
	})
	for _, fault := range []string{"stale", "lost", "twice"} {
		t.Run(fault, func(t *testing.T) {
			at := startDouble(t, fault)
			caught(t, registers, func() *history { return clients(t, at, time.Second, nil, asks) })
		})
	}
}
