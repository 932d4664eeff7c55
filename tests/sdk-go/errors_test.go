package sdkgo

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
	says "github.com/Azure/iot-operations-sdks/go/services/statestore/errors"
)

func TestAProtectedKeyRefusesALowerToken(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		now := time.Now()
		low, high := token(t, now), token(t, now.Add(time.Millisecond))
		set(t, store, "key", "value", statestore.WithFencingToken(high))
		fenced(t, store, low, says.FencingTokenLowerVersion)
		holds(t, store, "key", "value")
	})
}

func TestAProtectedKeyRefusesAMissingToken(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value", statestore.WithFencingToken(token(t, time.Now())))
		fenced(t, store, hlc.HybridLogicalClock{}, says.MissingFencingToken)
		holds(t, store, "key", "value")
	})
}

func TestAProtectedKeyTakesAnEqualToken(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		token := token(t, time.Now())
		set(t, store, "key", "value", statestore.WithFencingToken(token))
		set(t, store, "key", "another", statestore.WithFencingToken(token))
		holds(t, store, "key", "another")
		done, err := store.Del(timely(t), "key", statestore.WithFencingToken(token))
		if err != nil || done.Value != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
	})
}

func TestAHigherTokenTakesOver(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		now := time.Now()
		low, high := token(t, now), token(t, now.Add(time.Millisecond))
		set(t, store, "key", "value", statestore.WithFencingToken(low))
		set(t, store, "key", "another", statestore.WithFencingToken(high))
		fenced(t, store, low, says.FencingTokenLowerVersion)
	})
}

func TestDeletingAKeyEndsItsProtection(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		token := token(t, time.Now())
		set(t, store, "key", "value", statestore.WithFencingToken(token))
		done, err := store.VDel(timely(t), "key", "value", statestore.WithFencingToken(token))
		if err != nil || done.Value != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		set(t, store, "key", "another")
	})
}

func TestATokenFarAheadIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		fenced(t, store, token(t, time.Now().Add(2*time.Minute)), says.FencingTokenSkew)
		holds(t, store, "key", "value")
		// None of it has protected the key.
		set(t, store, "key", "another")
	})
}

func TestAClockFarAheadIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		_, err := ahead(t, at, 2*time.Minute).Set(timely(t), "key", "value")
		if !errors.Is(err, says.TimestampSkew) {
			t.Fatalf("%v", err)
		}
		absent(t, connect(t, at, "another"), "key")
	})
}

func TestAClockALittleAheadIsFollowed(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		from := time.Now()
		version := set(t, ahead(t, at, 30*time.Second), "key", "value")
		if version.UTC().Sub(from) < 29*time.Second {
			t.Fatalf("%s is before the request", version)
		}
		// Whose clock is right gets the version all the same, and writes what comes after.
		store := connect(t, at, "another")
		same(t, get(t, store, "key").Version, version)
		if next := set(t, store, "key", "another"); next.Compare(version) <= 0 {
			t.Fatalf("%s does not follow %s", next, version)
		}
	})
}

func TestOneKeyTooManyIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		set(t, store, "key", "value")
		_, err := store.Set(timely(t), "one too many", "value")
		if !errors.Is(err, says.QuotaExceeded) {
			t.Fatalf("%v", err)
		}
		set(t, store, "key", "another")
		absent(t, store, "one too many")
	}, "--max-keys", "1")
}

// token is a fencing token as a lock of that time has it.
func token(t *testing.T, at time.Time) hlc.HybridLogicalClock {
	t.Helper()
	token, err := hlc.New().Parse("token", fmt.Sprintf("%d:0:StateStore", at.UnixMilli()))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// fenced checks that each write to "key", which holds "value", is refused with that token.
func fenced(t *testing.T, on *client, token hlc.HybridLogicalClock, why says.Service) {
	t.Helper()
	with := statestore.WithFencingToken(token)
	if _, err := on.Set(timely(t), "key", "refused", with); !errors.Is(err, why) {
		t.Fatalf("SET: %v", err)
	}
	if _, err := on.Del(timely(t), "key", with); !errors.Is(err, why) {
		t.Fatalf("DEL: %v", err)
	}
	if _, err := on.VDel(timely(t), "key", "value", with); !errors.Is(err, why) {
		t.Fatalf("VDEL: %v", err)
	}
}

// ahead is a client whose clock is ahead by so much, and which does not mind.
func ahead(t *testing.T, at place, by time.Duration) *client {
	t.Helper()
	application := application(t, protocol.WithMaxClockDrift(time.Hour))
	if err := application.SetHLC(token(t, time.Now().Add(by))); err != nil {
		t.Fatal(err)
	}
	return clientOf[string, string](t, session(t, "ahead", mqtt.TCPConnection("127.0.0.1", at.port)), application)
}
