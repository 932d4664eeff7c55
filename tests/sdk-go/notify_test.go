package sdkgo

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
)

// The SDK hands each message to a goroutine of its own, so two notifications on
// their way at once may change places inside it. Hence each is received here
// before the next is caused.

type notification = statestore.Notify[string, string]

func TestASetIsTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		told := watch(t, watcher, "key")
		for _, value := range []string{"first", "", "third"} {
			version := set(t, writer, "key", value)
			tells(t, told, notification{Key: "key", Operation: "SET", Value: value, Version: version})
		}
	})
}

func TestADeleteIsTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		first, second := set(t, writer, "first", "value"), set(t, writer, "second", "value")
		told := watch(t, watcher, "first")
		del(t, writer, "first", 1)
		tells(t, told, notification{Key: "first", Operation: "DELETE", Version: first})
		told = watch(t, watcher, "second")
		vdel(t, writer, "second", "value", 1)
		tells(t, told, notification{Key: "second", Operation: "DELETE", Version: second})
	})
}

func TestAnExpiryIsTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		told := watch(t, watcher, "key")
		before := time.Now()
		version := set(t, writer, "key", "value", statestore.WithExpiry(short))
		tells(t, told, notification{Key: "key", Operation: "SET", Value: "value", Version: version})
		tells(t, told, notification{Key: "key", Operation: "DELETE", Version: version})
		if lived := time.Since(before); lived < short {
			t.Fatalf("told after %s already", lived)
		}
		absent(t, watcher, "key")
	})
}

func TestOwnWritesAreTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		told := watch(t, store, "key")
		version := set(t, store, "key", "value")
		tells(t, told, notification{Key: "key", Operation: "SET", Value: "value", Version: version})
	})
}

func TestEveryWatcherIsTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		first, second := watch(t, connect(t, at, "first"), "key"), watch(t, connect(t, at, "second"), "key")
		version := set(t, connect(t, at, "writer"), "key", "value")
		want := notification{Key: "key", Operation: "SET", Value: "value", Version: version}
		tells(t, first, want)
		tells(t, second, want)
	})
}

func TestKeysThatAreBytesAreTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		// The client id and the key are in the topic.
		watcher, writer := connect(t, at, "watcher+ü"), connect(t, at, "writer")
		key := "\x00/+#\xff\r\n"
		told := watch(t, watcher, key)
		version := set(t, writer, key, "\x00\r\n\xff")
		tells(t, told, notification{Key: key, Operation: "SET", Value: "\x00\r\n\xff", Version: version})
	})
}

func TestOnlyChangesOfTheWatchedKeyAreTold(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		set(t, writer, "key", "value")
		told := watch(t, watcher, "key")
		set(t, writer, "another key", "value")
		if done, err := writer.Set(timely(t), "key", "refused", statestore.NotExists); err != nil || done.Value {
			t.Fatalf("%+v, %v", done, err)
		}
		vdel(t, writer, "key", "refused", -1)
		version := set(t, writer, "key", "value")
		tells(t, told, notification{Key: "key", Operation: "SET", Value: "value", Version: version})
		quiet(t, told)
	})
}

func TestStopEndsIt(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		stopped, goesOn := watch(t, watcher, "stopped"), watch(t, watcher, "goes on")
		version := set(t, writer, "stopped", "value")
		tells(t, stopped, notification{Key: "stopped", Operation: "SET", Value: "value", Version: version})
		if err := watcher.KeyNotifyStop(timely(t), "stopped"); err != nil {
			t.Fatal(err)
		}
		set(t, writer, "stopped", "another")
		version = set(t, writer, "goes on", "value")
		tells(t, goesOn, notification{Key: "goes on", Operation: "SET", Value: "value", Version: version})
		quiet(t, stopped)
	})
}

func TestWatchingAgainAfterAStop(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		told := watch(t, watcher, "key")
		if err := watcher.KeyNotifyStop(timely(t), "key"); err != nil {
			t.Fatal(err)
		}
		if err := watcher.KeyNotify(timely(t), "key"); err != nil {
			t.Fatal(err)
		}
		version := set(t, writer, "key", "value")
		tells(t, told, notification{Key: "key", Operation: "SET", Value: "value", Version: version})
	})
}

func TestAWatcherThatReconnectsIsToldAgain(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		var line cuttable
		watcher := clientOf[string, string](t, session(t, "watcher", line.dial(at)), application(t))
		writer := connect(t, at, "writer")
		told := watch(t, watcher, "key")
		first := notification{Key: "key", Operation: "SET", Value: "first", Version: set(t, writer, "key", "first")}
		tells(t, told, first)

		line.cut(t)
		// The SDK watches again, reads, and tells what it has read. That may be the second value; then the third comes
		// from the store.
		tells(t, told, first)
		for _, value := range []string{"second", "third"} {
			version := set(t, writer, "key", value)
			tellsAtLast(t, told, notification{Key: "key", Operation: "SET", Value: value, Version: version})
		}
	})
}

// watch asks for the notifications of a key.
func watch(t *testing.T, on *client, key string) <-chan notification {
	t.Helper()
	told, done := on.Notify(key)
	t.Cleanup(done)
	if err := on.KeyNotify(timely(t), key); err != nil {
		t.Fatal(err)
	}
	return told
}

func tells(t *testing.T, told <-chan notification, want notification) {
	t.Helper()
	compare(t, receive(t, told), want)
}

func compare(t *testing.T, got, want notification) {
	t.Helper()
	if got.Key != want.Key || got.Operation != want.Operation || got.Value != want.Value {
		t.Fatalf("%q %s %q, not %q %s %q", got.Key, got.Operation, got.Value, want.Key, want.Operation, want.Value)
	}
	same(t, got.Version, want.Version)
}

// tellsAtLast passes over what is older. Notifications that were not
// acknowledged when a connection was lost come again with the next, and the SDK
// says that they may change places with what it read itself.
func tellsAtLast(t *testing.T, told <-chan notification, want notification) {
	t.Helper()
	got := receive(t, told)
	for got.Version.Compare(want.Version) < 0 {
		got = receive(t, told)
	}
	compare(t, got, want)
}

// quiet checks that nothing more comes, of what the broker has sent already.
func quiet(t *testing.T, told <-chan notification) {
	t.Helper()
	select {
	case got := <-told:
		t.Fatalf("%q %s %q at %s came too", got.Key, got.Operation, got.Value, got.Version)
	case <-time.After(200 * time.Millisecond):
	}
}

// cuttable is a connection that can be lost.
type cuttable struct {
	mu   sync.Mutex
	last net.Conn
}

func (c *cuttable) dial(at place) mqtt.ConnectionProvider {
	dial := mqtt.TCPConnection("127.0.0.1", at.port)
	return func(ctx context.Context) (net.Conn, error) {
		connection, err := dial(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.last = connection
		return connection, err
	}
}

func (c *cuttable) cut(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.last.Close(); err != nil {
		t.Fatal(err)
	}
}
