package sdkgo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/leasedlock"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
	"github.com/anishathalye/porcupine"
)

const (
	// The clients use groupKeys keys at a time, and change to new ones after groupTurns
	// turns. A request is one turn. A write without a response is lostTurns, since the
	// checker tries each order of these writes.
	groupKeys, groupTurns, lostTurns = 3, 600, 75
	// turnsMax bounds the memory of a history.
	turnsMax = 200_000
	// checkTime is the time limit of the checker.
	checkTime = time.Minute
	// leaseTime exceeds editTime, so no lease ends during an edit that succeeds.
	editTime, leaseTime = 3 * time.Second, 4 * time.Second

	timeout = statestore.WithTimeout(time.Second)
)

// phaseTime is the time for which clients send requests.
var phaseTime = map[bool]time.Duration{false: 8 * time.Second, true: time.Minute}[os.Getenv("STATESTORE_TEST_DEPTH") == "long"]

type request struct {
	verb, key, value string
	condition        statestore.Condition
}

// response contains the number that DEL and VDEL return; of a SET, it is 1 or -1.
type response struct {
	// unknown is set if no response came: the request has or has not been executed,
	// or will be.
	unknown bool
	number  int
	value   string
	version hlc.HybridLogicalClock
}

// register is the state of one key. The version is zero if no response contained it.
type register struct {
	present bool
	value   string
	version hlc.HybridLogicalClock
}

// step executes a request, and returns whether its response is correct.
func (before register) step(ask request, got response) (bool, register) {
	after, number, value := before, 0, ""
	equal := before.value == ask.value
	refuses := ask.condition == statestore.NotExists || ask.condition == statestore.NotExistsOrEqual && !equal
	switch {
	case ask.verb == "GET":
		value = before.value
	case ask.verb == "SET" && before.present && refuses, ask.verb == "VDEL" && before.present && !equal:
		number = -1
	case ask.verb == "SET":
		number, after = 1, register{true, ask.value, got.version}
	case before.present:
		number, after = 1, register{version: before.version}
	}
	order := got.version.Compare(before.version)
	switch {
	case got.unknown:
		return true, after
	case got.number != number || got.value != value:
		return false, after
	case ask.verb == "SET" && number == 1:
		return order > 0, after
	case !before.present:
		return got.version.IsZero(), after
	case before.version.IsZero():
		after.version = got.version
		return true, after
	}
	return order == 0, after
}

var registers = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, ask, got any) (bool, any) { return state.(register).step(ask.(request), got.(response)) },
}

// counters is a counter that clients read and replace under a lock. The input is what
// a client has read, and the output is whether its write succeeded.
var counters = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, read, succeeded any) (bool, any) {
		if state == read {
			return true, read.(int) + 1
		}
		return succeeded == false, state
	},
}

// history contains the operations on each key.
type history struct {
	t          *testing.T
	start, end time.Time
	// prefix makes the keys new.
	prefix           string
	mu               sync.Mutex
	turns, responses int
	operations       map[string][]porcupine.Operation
}

// worker is what one client does.
type worker func(*history, *client)

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// turn returns a key and a value that no other request has, until the end.
func (h *history) turn() (key, value string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns++
	key = fmt.Sprint(h.prefix, h.turns/groupTurns*groupKeys+rand.IntN(groupKeys))
	return key, fmt.Sprint(h.turns), h.turns < turnsMax && time.Now().Before(h.end)
}

// record adds an operation. One without a response never returns, so the checker may
// place it anywhere after its call, also after all others, where it has no effect.
func (h *history) record(key string, call int64, ask, got any, unknown bool) {
	back := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if unknown {
		h.turns += lostTurns
		back = math.MaxInt64
	} else {
		h.responses++
	}
	h.operations[key] = append(h.operations[key], porcupine.Operation{Input: ask, Call: call, Output: got, Return: back})
}

// check returns the operations of a key that no order explains.
func (h *history) check(model porcupine.Model) []porcupine.Operation {
	end := time.Now().Add(checkTime)
	for key, operations := range h.operations {
		switch porcupine.CheckOperationsTimeout(model, operations, max(time.Until(end), 1)) {
		case porcupine.Illegal:
			return operations
		case porcupine.Unknown:
			h.t.Fatalf("%q with %d operations could not be checked in time", key, len(operations))
		}
	}
	return nil
}

// passes fails the test unless an order of the operations explains all responses.
func (h *history) passes(model porcupine.Model) {
	h.t.Helper()
	if wrong := h.check(model); wrong != nil {
		h.t.Fatalf("not linearizable: %+v", wrong)
	}
	h.t.Logf("%d turns, %d responses", h.turns, h.responses)
	if h.responses < 20 {
		h.t.Fatal("too few responses")
	}
}

// caught repeats a run with a fault until the checker finds it.
func caught(t *testing.T, model porcupine.Model, run func() *history) {
	t.Helper()
	for range 10 {
		if run().check(model) != nil {
			return
		}
	}
	t.Fatal("the checker does not find the fault")
}

// clients is the history of eight clients. During it, disturb is called after every
// 50 responses.
func clients(t *testing.T, at place, lasts time.Duration, disturb func(), work worker) *history {
	t.Helper()
	var stores []*client
	for range 8 {
		// The sessions of earlier clients contain messages.
		session := session(t, fmt.Sprint("client-", rand.Uint64()), mqtt.TCPConnection("127.0.0.1", at.port))
		store, err := statestore.New[string, string](application(t), session)
		if err != nil {
			t.Fatal(err)
		}
		// Nothing closes it: Close waits for an UNSUBACK without a limit.
		if err := store.Start(timely(t)); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, store)
	}
	h := &history{t: t, start: time.Now(), prefix: fmt.Sprint(rand.Uint64(), "-"), operations: map[string][]porcupine.Operation{}}
	h.end = h.start.Add(lasts)
	var running sync.WaitGroup
	for _, store := range stores {
		running.Go(func() { work(h, store) })
	}
	for count := 50; disturb != nil && time.Now().Before(h.end); count += 50 {
		eventually(t, "the clients get responses", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.responses >= count || time.Now().After(h.end)
		})
		disturb()
	}
	running.Wait()
	return h
}

// asks is a client that sends all kinds of requests.
func asks(h *history, store *client) {
	seen := map[string]string{}
	for key, value, ok := h.turn(); ok; key, value, ok = h.turn() {
		ask := []request{
			{"GET", key, "", ""}, {"GET", key, "", ""}, {"GET", key, "", ""},
			{"SET", key, value, statestore.Always}, {"SET", key, value, statestore.NotExists},
			{"SET", key, seen[key], statestore.NotExistsOrEqual},
			{"DEL", key, "", ""}, {"VDEL", key, seen[key], ""},
		}[rand.IntN(8)]
		call := h.now()
		got, err := ask.send(store)
		if errors.Is(err, statestore.ErrService) || errors.Is(err, statestore.ErrPayload) {
			h.t.Errorf("%+v: %v", ask, err)
		}
		if ask.verb == "GET" {
			seen[key] = got.value
		}
		if err == nil || ask.verb != "GET" {
			h.record(key, call, ask, got, err != nil)
		}
	}
}

func (ask request) send(store *client) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch ask.verb {
	case "GET":
		return responseOf(store.Get(ctx, ask.key, timeout))
	case "SET":
		return responseOf(store.Set(ctx, ask.key, ask.value, timeout, ask.condition))
	case "DEL":
		return responseOf(store.Del(ctx, ask.key, timeout))
	}
	return responseOf(store.VDel(ctx, ask.key, ask.value, timeout))
}

func responseOf[T any](done *statestore.Response[T], err error) (response, error) {
	if err != nil {
		return response{unknown: true}, err
	}
	got := response{version: done.Version}
	switch value := any(done.Value).(type) {
	case string:
		got.value = value
	case bool:
		got.number = map[bool]int{true: 1, false: -1}[value]
	case int:
		got.number = value
	}
	return got, nil
}

// counts returns a client that increments a counter under its lock.
func counts(name func() string) worker {
	return func(h *history, store *client) {
		lock := leasedlock.NewLock(store, h.prefix+name())
		for time.Now().Before(h.end) {
			h.edit(store, lock)
		}
	}
}

func (h *history) edit(store *client, lock lock) {
	ctx, cancel := context.WithTimeout(context.Background(), editTime)
	defer cancel()
	if acquired, err := lock.Acquire(ctx, leaseTime, leasedlock.WithTimeout(timeout)); err != nil || !acquired {
		return
	}
	defer func() { _ = lock.Release(ctx, leasedlock.WithTimeout(timeout)) }()
	call := h.now()
	token, failed := lock.Token(ctx)
	found, err := store.Get(ctx, h.prefix, timeout)
	if failed != nil || err != nil {
		return
	}
	// An absent value is 0.
	read, _ := strconv.Atoi(found.Value)
	_, err = store.Set(ctx, h.prefix, strconv.Itoa(read+1), timeout, statestore.WithFencingToken(token))
	h.record(h.prefix, call, read, err == nil, err != nil)
}

func TestRequestsAndCountsUnderALockAreLinearizable(t *testing.T) {
	for name, run := range map[string]func(*testing.T, worker) *history{
		"alone": func(t *testing.T, work worker) *history {
			return clients(t, startStore(t, "--listen", "127.0.0.1:0"), phaseTime, nil, work)
		},
		"behind cuts and repetitions": func(t *testing.T, work worker) *history {
			at, proxy := startProxy(t, startStore(t, "--listen", "127.0.0.1:0"), faults)
			h := clients(t, at, phaseTime, nil, work)
			for _, kind := range []string{": cut ", ": repeat "} {
				if !strings.Contains(proxy.printed.String(), kind) {
					t.Errorf("the proxy printed no %q", kind)
				}
			}
			return h
		},
		"beside mosquitto, killed": func(t *testing.T, work worker) *history {
			broker, kill := startMortal(t, "--data-dir", t.TempDir(), "--durable", "all")
			return clients(t, broker, phaseTime, kill, work)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, asks).passes(registers)
			run(t, counts(func() string { return "lock" })).passes(counters)
		})
	}
}

// A killed store forgets what is not durable.
func TestAStoreThatForgetsIsCaught(t *testing.T) {
	broker, kill := startMortal(t)
	caught(t, registers, func() *history { return clients(t, broker, 2*time.Second, kill, asks) })
}

func TestCountsWithoutACommonLockAreCaught(t *testing.T) {
	at := startStore(t, "--listen", "127.0.0.1:0")
	ownLock := func() string { return fmt.Sprint(rand.Uint64()) }
	caught(t, counters, func() *history { return clients(t, at, time.Second, nil, counts(ownLock)) })
}

// startMortal starts a store beside mosquitto, and returns a function that kills and restarts it.
func startMortal(t *testing.T, arguments ...string) (place, func()) {
	t.Helper()
	broker := startMosquitto(t)
	arguments = append([]string{"--broker", fmt.Sprintf("mqtt://127.0.0.1:%d", broker.port)}, arguments...)
	_, running := startServe(t, arguments...)
	return broker, func() {
		running.kill()
		_, running = startServe(t, arguments...)
	}
}

const faults = `fault = [
    { kind = "cut", from = "2s", until = "2050ms" },
    { kind = "cut", probability = 0.001 },
    { kind = "cut-inside", probability = 0.001 },
    { kind = "drop", packet = "publish", probability = 0.001, cut-after = "100ms" },
    { kind = "drop", packet = "puback", probability = 0.001, cut-after = "100ms" },
    { kind = "hold", probability = 0.0003, for = "1500ms" },
    { kind = "repeat", probability = 0.05 },
]`

var proxyOn = regexp.MustCompile(`mqtt://127\.0\.0\.1:(\d+),`)

// startProxy starts a proxy with faults in front of a broker.
func startProxy(t *testing.T, at place, faults string) (place, *process) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "faults.toml")
	if err := os.WriteFile(file, []byte(faults), 0o644); err != nil {
		t.Fatal(err)
	}
	return startCommand(t, "statestore-tools", proxyOn, "proxy", "--listen", "127.0.0.1:0",
		"--broker", fmt.Sprintf("mqtt://127.0.0.1:%d", at.port), "--faults", file)
}
