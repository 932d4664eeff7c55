package sdkgo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
)

// faultyStore is a store with a fault in one of twenty requests.
type faultyStore struct {
	fault    string
	clock    *hlc.Global
	requests int
	now, old map[string]stored
	lastSet  []string
}

type stored struct{ value, version string }

// execute returns the payload and the version of a response.
func (s *faultyStore) execute(words []string) (string, string) {
	verb, key := words[0], words[1]
	found, present := s.now[key]
	isFaulty := s.requests%20 == 0
	switch {
	case verb == "GET":
		if old, ok := s.old[key]; ok && isFaulty && s.fault == "stale" {
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
		version, err := s.clock.Get()
		if err != nil {
			panic(err)
		}
		if !isFaulty || s.fault != "lost" {
			s.old[key], s.now[key] = found, stored{words[2], version.String()}
		}
		s.lastSet = words
		return "+OK", version.String()
	case !present:
		return ":0", ""
	case verb == "VDEL" && found.value != words[2]:
		return ":-1", found.version
	}
	delete(s.now, key)
	return ":1", found.version
}

// startFaultyStore starts a faulty store with mosquitto.
func startFaultyStore(t *testing.T, fault string) place {
	t.Helper()
	broker := startMosquitto(t)
	client := session(t, "faulty-store", mqtt.TCPConnection("127.0.0.1", broker.port))
	faulty := &faultyStore{fault: fault, clock: hlc.New(), now: map[string]stored{}, old: map[string]stored{}}
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
		faulty.requests++
		payload, version := faulty.execute(words)
		if faulty.fault == "twice" && faulty.requests%20 == 0 && faulty.lastSet != nil {
			faulty.execute(faulty.lastSet)
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
	const responses = 5_000
	t.Run("none", func(t *testing.T) {
		sound := plan{responses: responses, limit: soundTime}
		runClients(t, startFaultyStore(t, ""), sound, sendAllKinds).passes(registers)
	})
	for _, fault := range []string{"stale", "lost", "twice"} {
		t.Run(fault, func(t *testing.T) {
			at := startFaultyStore(t, fault)
			expectCaught(t, registers, func() *history {
				return runClients(t, at, plan{responses: responses, limit: faultyTime}, sendAllKinds)
			})
		})
	}
}
