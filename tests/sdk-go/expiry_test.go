package sdkgo

import (
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/services/statestore"
)

// Long enough that requests of a test come before it, on a busy machine too.
const short = 500 * time.Millisecond

func TestAValueIsGoneAfterItsExpiry(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		before := time.Now()
		set(t, store, "key", "value", statestore.WithExpiry(short))
		holds(t, store, "key", "value")
		eventually(t, "the key is gone", func() bool { return get(t, store, "key").Version.IsZero() })
		if lived := time.Since(before); lived < short {
			t.Fatalf("gone after %s already", lived)
		}
		del(t, store, "key", 0)
		set(t, store, "key", "another", statestore.NotExists)
	})
}

func TestAValueWithoutExpiryStays(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		pass(t, store, short)
		holds(t, store, "key", "value")
	})
}

func TestASetWithoutExpiryEndsTheOldOne(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.WithExpiry(short))
		set(t, store, "key", "value")
		pass(t, store, short)
		holds(t, store, "key", "value")
	})
}

func TestAnEqualValuePutsItsExpiryOff(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.WithExpiry(short))
		set(t, store, "key", "value", statestore.NotExistsOrEqual, statestore.WithExpiry(time.Minute))
		pass(t, store, short)
		holds(t, store, "key", "value")
	})
}

func TestARefusedSetDoesNotPutTheExpiryOff(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.WithExpiry(short))
		done, err := store.Set(timely(t), "key", "another", statestore.NotExistsOrEqual, statestore.WithExpiry(time.Minute))
		if err != nil || done.Value {
			t.Fatalf("%+v, %v", done, err)
		}
		eventually(t, "the key is gone", func() bool { return get(t, store, "key").Version.IsZero() })
	})
}
