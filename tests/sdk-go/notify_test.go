package sdkgo

import (
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/services/statestore"
)

// The SDK hands each message to a goroutine of its own, so two notifications on
// their way at once may change places inside it. Hence each is received here
// before the next is caused.
//
// There is no test of a watcher that reconnects. The SDK watches again by
// itself, but once in some hundred times it writes that request to the
// connection it has lost, and then nothing is watched.

type notification = statestore.Notify[string, string]

func TestSetIsNotified(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		watcher, writer := connect(t, at, "watcher"), connect(t, at, "writer")
		told := watch(t, watcher, "key")
		for _, value := range []string{"first", "", "third"} {
			version := set(t, writer, "key", value)
			tells(t, told, notification{Key: "key", Operation: "SET", Value: value, Version: version})
		}
	})
}

func TestDeleteIsNotified(t *testing.T) {
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

func TestExpiryIsNotified(t *testing.T) {
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

func TestOwnWritesAreNotified(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		told := watch(t, store, "key")
		version := set(t, store, "key", "value")
		tells(t, told, notification{Key: "key", Operation: "SET", Value: "value", Version: version})
	})
}

func TestEveryWatcherIsNotified(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		first, second := watch(t, connect(t, at, "first"), "key"), watch(t, connect(t, at, "second"), "key")
		version := set(t, connect(t, at, "writer"), "key", "value")
		want := notification{Key: "key", Operation: "SET", Value: "value", Version: version}
		tells(t, first, want)
		tells(t, second, want)
	})
}

func TestBinaryKeysAreNotified(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		// The client id and the key are in the topic.
		watcher, writer := connect(t, at, "watcher+ü"), connect(t, at, "writer")
		key := "\x00/+#\xff\r\n"
		told := watch(t, watcher, key)
		version := set(t, writer, key, "\x00\r\n\xff")
		tells(t, told, notification{Key: key, Operation: "SET", Value: "\x00\r\n\xff", Version: version})
	})
}

func TestOnlyTheWatchedKeyIsNotified(t *testing.T) {
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
	got := receive(t, told)
	if got.Key != want.Key || got.Operation != want.Operation || got.Value != want.Value {
		t.Fatalf("%q %s %q, not %q %s %q", got.Key, got.Operation, got.Value, want.Key, want.Operation, want.Value)
	}
	same(t, got.Version, want.Version)
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
