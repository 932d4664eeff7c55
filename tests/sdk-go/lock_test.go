package sdkgo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/leasedlock"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
	says "github.com/Azure/iot-operations-sdks/go/services/statestore/errors"
)

type lock = leasedlock.Lock[string, string]

func TestALockHasOneHolder(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		first, second := lockOf(t, at, "first"), lockOf(t, at, "second")
		heldBy(t, second, "")
		took := acquire(t, first, time.Minute)
		if acquired, err := second.Acquire(timely(t), time.Minute); err != nil || acquired {
			t.Fatalf("%t, %v", acquired, err)
		}
		if _, err := second.Token(timely(t)); !errors.Is(err, leasedlock.ErrNoLease) {
			t.Fatalf("%v", err)
		}
		heldBy(t, second, "first")

		release(t, first)
		heldBy(t, second, "")
		if next := acquire(t, second, time.Minute); next.Compare(took) <= 0 {
			t.Fatalf("token %s does not follow %s", next, took)
		}
		heldBy(t, first, "second")
	})
}

func TestAHolderRenewsItsLock(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		holder := lockOf(t, at, "holder")
		took := acquire(t, holder, short)
		if renewed := acquire(t, holder, time.Minute); renewed.Compare(took) <= 0 {
			t.Fatalf("token %s does not follow %s", renewed, took)
		}
		pass(t, connect(t, at, "another"), short)
		heldBy(t, holder, "holder")
	})
}

func TestALockThatIsNotRenewedIsFree(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		first, second := lockOf(t, at, "first"), lockOf(t, at, "second")
		before := time.Now()
		acquire(t, first, short)
		eventually(t, "the second has it", func() bool {
			acquired, err := second.Acquire(timely(t), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return acquired
		})
		if lasted := time.Since(before); lasted < short {
			t.Fatalf("free after %s already", lasted)
		}
		heldBy(t, first, "second")
	})
}

func TestOnlyTheHolderReleases(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		first, second := lockOf(t, at, "first"), lockOf(t, at, "second")
		acquire(t, first, time.Minute)
		release(t, second)
		heldBy(t, second, "first")
	})
}

func TestSessionsOfOneClientExcludeEachOther(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		store := connect(t, at, "client")
		first := leasedlock.NewLock(store, "lock", leasedlock.WithSessionID("1"))
		second := leasedlock.NewLock(store, "lock", leasedlock.WithSessionID("2"))
		acquire(t, first, time.Minute)
		if acquired, err := second.Acquire(timely(t), time.Minute); err != nil || acquired {
			t.Fatalf("%t, %v", acquired, err)
		}
		heldBy(t, second, "client:1")
	})
}

func TestALockRenewsItselfUntilItIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		holder, store := lockOf(t, at, "holder"), connect(t, at, "another")
		// Releasing would be the common end. But from then on the SDK's goroutine goes round without a pause.
		took := acquire(t, holder, 2*short, leasedlock.WithRenew(short/5))
		pass(t, store, 3*short)
		heldBy(t, holder, "holder")
		renewed, err := holder.Token(timely(t))
		if err != nil || renewed.Compare(took) <= 0 {
			t.Fatalf("token %s does not follow %s, %v", renewed, took, err)
		}

		set(t, store, "lock", "taken away")
		eventually(t, "the holder learns of it", func() bool {
			_, err := holder.Token(timely(t))
			return errors.Is(err, leasedlock.ErrNoLease)
		})
		holds(t, store, "lock", "taken away")
	})
}

func TestATokenOfALockProtectsAKey(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		first, second := lockOf(t, at, "first"), lockOf(t, at, "second")
		store := connect(t, at, "client")
		stale := acquire(t, first, time.Minute)
		set(t, store, "key", "first", statestore.WithFencingToken(stale))
		release(t, first)
		set(t, store, "key", "second", statestore.WithFencingToken(acquire(t, second, time.Minute)))
		_, err := store.Set(timely(t), "key", "first again", statestore.WithFencingToken(stale))
		if !errors.Is(err, says.FencingTokenLowerVersion) {
			t.Fatalf("%v", err)
		}
		holds(t, store, "key", "second")
	})
}

func TestAFreeLockIsLockedAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		holder := lockOf(t, at, "holder")
		if err := holder.Lock(timely(t), time.Minute); err != nil {
			t.Fatal(err)
		}
		heldBy(t, holder, "holder")
		if err := holder.Unlock(timely(t)); err != nil {
			t.Fatal(err)
		}
		heldBy(t, holder, "")
	})
}

func TestAWaiterGivesUpInTime(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		holder, waiter := lockOf(t, at, "holder"), lockOf(t, at, "waiter")
		acquire(t, holder, time.Minute)
		// The SDK wants whole seconds here.
		err := waiter.Lock(timely(t), time.Minute, leasedlock.WithTimeout(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		heldBy(t, waiter, "holder")
	})
}

func TestAWaiterHasTheLockWhenItIsReleased(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		holder, waiter := lockOf(t, at, "holder"), lockOf(t, at, "waiter")
		acquire(t, holder, time.Minute)
		locked := lockInBackground(t, waiter)
		select {
		case err := <-locked:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(short):
		}
		release(t, holder)
		if err := receive(t, locked); err != nil {
			t.Fatal(err)
		}
		heldBy(t, holder, "waiter")
	})
}

func TestAWaiterHasTheLockWhenItExpires(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		holder, waiter := lockOf(t, at, "holder"), lockOf(t, at, "waiter")
		before := time.Now()
		acquire(t, holder, short)
		if err := receive(t, lockInBackground(t, waiter)); err != nil {
			t.Fatal(err)
		}
		if lasted := time.Since(before); lasted < short {
			t.Fatalf("locked twice, after %s", lasted)
		}
		heldBy(t, holder, "waiter")
	})
}

func TestChangesOfTheHolderAreObserved(t *testing.T) {
	delivering(t, func(t *testing.T, at place) {
		first, second, observer := lockOf(t, at, "first"), lockOf(t, at, "second"), lockOf(t, at, "observer")
		changes, done := observer.Observe()
		t.Cleanup(done)
		if err := observer.ObserveStart(timely(t)); err != nil {
			t.Fatal(err)
		}
		observes := func(want leasedlock.Change) {
			t.Helper()
			if got := receive(t, changes); got != want {
				t.Fatalf("%+v, not %+v", got, want)
			}
		}
		acquire(t, first, time.Minute)
		observes(leasedlock.Change{Held: true, Holder: "first"})
		release(t, first)
		observes(leasedlock.Change{})
		acquire(t, second, short)
		observes(leasedlock.Change{Held: true, Holder: "second"})
		observes(leasedlock.Change{})

		if err := observer.ObserveStop(timely(t)); err != nil {
			t.Fatal(err)
		}
		acquire(t, first, time.Minute)
		select {
		case got := <-changes:
			t.Fatalf("%+v after the stop", got)
		case <-time.After(200 * time.Millisecond):
		}
	})
}

func TestEditWritesUnderTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		editor, store := lockOf(t, at, "editor"), connect(t, at, "client")
		edit := func(was string, there bool, now string, keep bool) {
			t.Helper()
			err := editor.Edit(timely(t), "key", time.Minute, func(ctx context.Context, value string, present bool) (string, bool, error) {
				if value != was || present != there {
					t.Errorf("%q, %t, not %q, %t", value, present, was, there)
				}
				heldBy(t, editor, "editor")
				return now, keep, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			heldBy(t, editor, "")
		}
		edit("", false, "first", true)
		holds(t, store, "key", "first")
		// The key is protected from whoever has no lock.
		if _, err := store.Set(timely(t), "key", "no lock"); !errors.Is(err, says.MissingFencingToken) {
			t.Fatalf("%v", err)
		}
		edit("first", true, "second", true)
		holds(t, store, "key", "second")
		edit("second", true, "", false)
		absent(t, store, "key")
	})
}

func TestAnEditThatFailsLeavesTheKeyAndTheLock(t *testing.T) {
	everywhere(t, func(t *testing.T, at place) {
		editor, store := lockOf(t, at, "editor"), connect(t, at, "client")
		set(t, store, "key", "value")
		failure := errors.New("not today")
		err := editor.Edit(timely(t), "key", time.Minute, func(context.Context, string, bool) (string, bool, error) {
			return "another", true, failure
		})
		if !errors.Is(err, failure) {
			t.Fatalf("%v", err)
		}
		holds(t, store, "key", "value")
		heldBy(t, editor, "")
	})
}

// lockOf is the one lock of these tests, in the hands of a client of its own.
func lockOf(t *testing.T, at place, id string) lock {
	t.Helper()
	return leasedlock.NewLock(connect(t, at, id), "lock")
}

// acquire takes a lock that must be free, or held already, and returns its token.
func acquire(t *testing.T, lock lock, duration time.Duration, options ...leasedlock.Option) hlc.HybridLogicalClock {
	t.Helper()
	acquired, err := lock.Acquire(timely(t), duration, options...)
	if err != nil || !acquired {
		t.Fatalf("acquired %t, %v", acquired, err)
	}
	token, err := lock.Token(timely(t))
	if err != nil || token.IsZero() {
		t.Fatalf("token %s, %v", token, err)
	}
	return token
}

func release(t *testing.T, lock lock) {
	t.Helper()
	if err := lock.Release(timely(t)); err != nil {
		t.Fatal(err)
	}
}

// heldBy checks who holds a lock; nobody has no name.
func heldBy(t *testing.T, lock lock, name string) {
	t.Helper()
	holder, held, err := lock.Holder(timely(t))
	if err != nil || held != (name != "") || holder != name {
		t.Fatalf("held by %q, %t, %v, not by %q", holder, held, err, name)
	}
}

func lockInBackground(t *testing.T, lock lock) <-chan error {
	t.Helper()
	locked := make(chan error, 1)
	ctx := timely(t)
	go func() { locked <- lock.Lock(ctx, time.Minute) }()
	return locked
}
