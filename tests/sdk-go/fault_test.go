package sdkgo

import (
	"context"
	"strings"
	"testing"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
)

// TestRequestedFaults are the cases of fault_injection_test.go in the repository of the
// SDK, whose module does not contain its tests. After each fault, the client uses the store.
func TestRequestedFaults(t *testing.T) {
	const serverBusy, administrativeAction = "137", "152"
	at, proxy := startProxy(t, startStore(t, "--listen", "127.0.0.1:0"), "")
	disconnect := mqtt.WithUserProperties{"fault:disconnect": administrativeAction, "fault:requestid": "once"}
	for name, use := range map[string]func(context.Context, *mqtt.SessionClient) (*mqtt.Ack, error){
		"rejected connect": nil,
		"disconnect while idle": func(ctx context.Context, client *mqtt.SessionClient) (*mqtt.Ack, error) {
			delayed := mqtt.WithUserProperties{"fault:disconnect": administrativeAction, "fault:delay": "1"}
			return client.Publish(ctx, "test-topic", []byte("test-data"), delayed)
		},
		"disconnect during subscribe": func(ctx context.Context, client *mqtt.SessionClient) (*mqtt.Ack, error) {
			return client.Subscribe(ctx, "test-topic", disconnect)
		},
		"disconnect during unsubscribe": func(ctx context.Context, client *mqtt.SessionClient) (*mqtt.Ack, error) {
			if ack, err := client.Subscribe(ctx, "test-topic"); err != nil {
				return ack, err
			}
			return client.Unsubscribe(ctx, "test-topic", disconnect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var options []mqtt.SessionClientOption
			if use == nil {
				options = append(options, mqtt.WithConnectUserProperties{"fault:rejectconnect": serverBusy, "fault:requestid": name})
			}
			client := session(t, name, mqtt.TCPConnection("127.0.0.1", at.port), options...)
			if use != nil {
				lost := make(chan *mqtt.DisconnectEvent, 1)
				defer client.RegisterDisconnectEventHandler(func(event *mqtt.DisconnectEvent) { lost <- event })()
				if _, err := use(timely(t), client); err != nil {
					t.Fatal(err)
				}
				if event := receive(t, lost); event.ReasonCode == nil || *event.ReasonCode != 0x98 {
					t.Fatalf("%+v", event)
				}
			}
			store := clientOf[string, string](t, client, application(t))
			set(t, store, name, "value")
			holds(t, store, name, "value")
		})
	}
	for kind, count := range map[string]int{"requested-reject": 1, "requested-disconnect": 3} {
		eventually(t, kind, func() bool { return strings.Count(proxy.printed.String(), ": "+kind+" ") == count })
	}
}
