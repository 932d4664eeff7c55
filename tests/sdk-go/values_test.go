package sdkgo

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
)

func TestAnotherClientReadsWhatWasSet(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		set(t, connect(t, at, "writer"), "key", "value")
		holds(t, connect(t, at, "reader"), "key", "value")
	})
}

func TestAnAbsentKeyHasNoValueAndNoVersion(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		absent(t, store, "another key")
	})
}

func TestAnEmptyValueIsNotAbsent(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		set(t, store, "key", "")
		holds(t, store, "key", "")
	})
}

func TestKeysAndValuesAreBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		connection := session(t, "client", mqtt.TCPConnection("127.0.0.1", at.port))
		store := clientOf[[]byte, []byte](t, connection, application(t))
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		// What looks like the end of a blob, or like another, belongs to the value.
		value := append([]byte("\r\n$3\r\nabc\r\n"), every...)
		if _, err := store.Set(timely(t), every, value); err != nil {
			t.Fatal(err)
		}
		got, err := store.Get(timely(t), every)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Value, value) {
			t.Fatalf("%q came back as %q", value, got.Value)
		}
		// A key that differs in its last byte only is another one.
		other := append(bytes.Clone(every[:255]), 0)
		if got, err = store.Get(timely(t), other); err != nil || !got.Version.IsZero() {
			t.Fatalf("%q at %s, %v", got.Value, got.Version, err)
		}
	})
}

func TestALargeValueComesBackWhole(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		value := strings.Repeat("0123456789", 6_500)
		set(t, store, "key", value)
		if got := get(t, store, "key").Value; got != value {
			t.Fatalf("%d bytes came back as %d, or as others", len(value), len(got))
		}
	})
}

func TestASetThatIsToBeKeptOnDiskIsApplied(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.WithPersist(true))
		holds(t, store, "key", "value")
	})
}

func TestRequestsAtTheSameTimeGetTheirOwnReplies(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		ctx := timely(t)
		var requests sync.WaitGroup
		for i := range 50 {
			requests.Go(func() {
				key, value := fmt.Sprint("key ", i), fmt.Sprint("value ", i)
				if done, err := store.Set(ctx, key, value); err != nil || !done.Value {
					t.Errorf("SET %q: %v", key, err)
					return
				}
				if got, err := store.Get(ctx, key); err != nil || got.Value != value {
					t.Errorf("GET %q: %v, %v", key, got, err)
				}
			})
		}
		requests.Wait()
	})
}

func TestDelTellsWhetherThereWasAnything(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		version := set(t, store, "key", "value")
		same(t, del(t, store, "key", 1).Version, version)
		absent(t, store, "key")
		del(t, store, "key", 0)
	})
}

func TestVDelDeletesTheValueItNames(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		version := set(t, store, "key", "value")
		same(t, vdel(t, store, "key", "value", 1).Version, version)
		absent(t, store, "key")
		vdel(t, store, "key", "value", 0)
	})
}

func TestVDelLeavesAnotherValue(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		vdel(t, store, "key", "another", -1)
		holds(t, store, "key", "value")
	})
}

func TestNotExistsSetsAnAbsentKey(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.NotExists)
		holds(t, store, "key", "value")
		// Absent again counts as absent.
		del(t, store, "key", 1)
		set(t, store, "key", "another", statestore.NotExists)
	})
}

func TestNotExistsLeavesAKeyThatIsThere(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		version := set(t, store, "key", "value")
		refused(t, store, "key", "another", statestore.NotExists, version)
		refused(t, store, "key", "value", statestore.NotExists, version)
		holds(t, store, "key", "value")
		same(t, get(t, store, "key").Version, version)
	})
}

func TestNotExistsOrEqualSetsAnEqualValueAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		first := set(t, store, "key", "value")
		second := set(t, store, "key", "value", statestore.NotExistsOrEqual)
		if second.Compare(first) <= 0 {
			t.Fatalf("%s does not follow %s", second, first)
		}
	})
}

func TestNotExistsOrEqualLeavesAnotherValue(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		version := set(t, store, "key", "value")
		refused(t, store, "key", "another", statestore.NotExistsOrEqual, version)
		holds(t, store, "key", "value")
	})
}

func same(t *testing.T, got, want hlc.HybridLogicalClock) {
	t.Helper()
	if got.Compare(want) != 0 {
		t.Fatalf("version %s, not %s", got, want)
	}
}

func del(t *testing.T, on *client, key string, deleted int) *statestore.Response[int] {
	t.Helper()
	done, err := on.Del(timely(t), key)
	if err != nil || done.Value != deleted {
		t.Fatalf("DEL %q: %+v, %v, not %d", key, done, err, deleted)
	}
	return done
}

func vdel(t *testing.T, on *client, key, value string, deleted int) *statestore.Response[int] {
	t.Helper()
	done, err := on.VDel(timely(t), key, value)
	if err != nil || done.Value != deleted {
		t.Fatalf("VDEL %q: %+v, %v, not %d", key, done, err, deleted)
	}
	return done
}

// refused is a SET whose condition does not hold: that is no error, and the SDK
// promises the version of the value in its way.
func refused(t *testing.T, on *client, key, value string, condition statestore.Condition, stored hlc.HybridLogicalClock) {
	t.Helper()
	done, err := on.Set(timely(t), key, value, condition)
	if err != nil {
		t.Fatal(err)
	}
	if done.Value {
		t.Fatalf("SET %q %s was applied", key, condition)
	}
	same(t, done.Version, stored)
}
