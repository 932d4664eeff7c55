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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
	"github.com/anishathalye/porcupine"
)

const (
	// clients is the number of clients that send requests at the same time.
	clients = 8
	// groupTurns is the number of requests before the clients change to new keys.
	groupTurns = 600
	// groupKeys is the number of keys at a time.
	groupKeys = 3
	// lostTurns are the turns of a write without a response. The checker tries each
	// order of these writes, so a key gets few of them.
	lostTurns = groupTurns / 8
	// historyMax bounds the memory of a history.
	historyMax = 200_000
	// checkTime is the time limit of the checker.
	checkTime = time.Minute
)

// phaseTime is the time for which clients send requests.
func phaseTime() time.Duration {
	if os.Getenv("STATESTORE_TEST_DEPTH") == "long" {
		return time.Minute
	}
	return 8 * time.Second
}

type request struct {
	verb, key, value string
	condition        statestore.Condition
}

type response struct {
	// unknown is set if no response came: the request has or has not been executed,
	// or will be.
	unknown bool
	// number is that of DEL and VDEL, 1 for a GET with a value and for a SET that
	// was applied, 0 for a GET without a value and -1 for a SET that was not applied.
	number  int
	value   string
	version hlc.HybridLogicalClock
}

// register is the state of one key.
type register struct {
	present bool
	value   string
	// version is that of the last value; zero if no response contained it.
	version hlc.HybridLogicalClock
}

// step executes a request, and returns whether its response is correct.
func (before register) step(ask request, got response) (bool, register) {
	number := 1
	switch {
	case ask.verb == "SET":
		if before.present && (ask.condition == statestore.NotExists ||
			ask.condition == statestore.NotExistsOrEqual && before.value != ask.value) {
			number = -1
		}
	case !before.present:
		number = 0
	case ask.verb == "VDEL" && before.value != ask.value:
		number = -1
	}
	after, value := before, ""
	switch {
	case ask.verb == "GET":
		value = before.value
	case number == 1 && ask.verb == "SET":
		after = register{true, ask.value, got.version}
	case number == 1:
		after.present, after.value = false, ""
	}
	switch {
	case got.unknown:
		return true, after
	case got.number != number || got.value != value:
		return false, after
	case number == 1 && ask.verb == "SET":
		return got.version.Compare(before.version) > 0, after
	case !before.present:
		return got.version.IsZero(), after
	case before.version.IsZero():
		after.version = got.version
		return true, after
	}
	return got.version.Compare(before.version) == 0, after
}

var registers = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, ask, got any) (bool, any) {
		return state.(register).step(ask.(request), got.(response))
	},
	Equal: func(one, other any) bool {
		a, b := one.(register), other.(register)
		return a.present == b.present && a.value == b.value && a.version.Compare(b.version) == 0
	},
}

// history records operations by the key that they change.
type history struct {
	start, end time.Time
	// prefix is that of the keys, so that they are absent at the start.
	prefix     string
	mu         sync.Mutex
	turns      int
	operations map[string][]porcupine.Operation
	responses  int
	unknown    int
}

func newHistory(lasts time.Duration) *history {
	now := time.Now()
	return &history{
		start: now, end: now.Add(lasts), prefix: fmt.Sprint(rand.Uint64()), operations: map[string][]porcupine.Operation{},
	}
}

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// turn returns a key and a value that no other request has, until the end.
func (h *history) turn() (key, value string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns++
	key = fmt.Sprint(h.prefix, "-", h.turns/groupTurns*groupKeys+rand.IntN(groupKeys))
	return key, fmt.Sprint(h.turns), h.turns < historyMax && time.Now().Before(h.end)
}

// record adds an operation. One without a response never returns, so the checker may
// place it anywhere after its call, also after all others, where it has no effect.
func (h *history) record(client int, key string, call int64, ask, got any, unknown bool) {
	back := h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if unknown {
		h.turns += lostTurns
		h.unknown++
		back = math.MaxInt64
	} else {
		h.responses++
	}
	operation := porcupine.Operation{ClientId: client, Input: ask, Call: call, Output: got, Return: back}
	h.operations[key] = append(h.operations[key], operation)
}

// check returns the operations of a key that no order explains.
func (h *history) check(t *testing.T, model porcupine.Model) []porcupine.Operation {
	t.Helper()
	end := time.Now().Add(checkTime)
	for key, operations := range h.operations {
		switch porcupine.CheckOperationsTimeout(model, operations, max(time.Until(end), 1)) {
		case porcupine.Illegal:
			return operations
		case porcupine.Unknown:
			t.Fatalf("%q with %d operations could not be checked in time", key, len(operations))
		}
	}
	return nil
}

// passes fails the test unless an order of the operations explains all responses.
func (h *history) passes(t *testing.T, model porcupine.Model) {
	t.Helper()
	if wrong := h.check(t, model); wrong != nil {
		var text strings.Builder
		for _, done := range wrong {
			fmt.Fprintf(&text, "%d: %d-%d: %+v: %+v\n", done.ClientId, done.Call, done.Return, done.Input, done.Output)
		}
		t.Fatalf("not linearizable:\n%s", &text)
	}
	t.Logf("%d responses, %d requests without", h.responses, h.unknown)
	if h.responses < 300 {
		t.Fatalf("only %d responses", h.responses)
	}
}

// sends is a client that sends requests until the end.
func (h *history) sends(t *testing.T, store *client, number int) {
	seen := map[string]string{}
	for {
		key, value, ok := h.turn()
		if !ok {
			return
		}
		ask := request{verb: "GET", key: key}
		switch rand.IntN(10) {
		case 0, 1:
			ask = request{verb: "SET", key: key, value: value}
		case 2:
			ask = request{verb: "SET", key: key, value: value, condition: statestore.NotExists}
		case 3:
			ask = request{verb: "SET", key: key, value: seen[key], condition: statestore.NotExistsOrEqual}
		case 4:
			ask = request{verb: "DEL", key: key}
		case 5:
			ask = request{verb: "VDEL", key: key, value: seen[key]}
		}
		call := h.now()
		got, err := ask.send(store)
		switch {
		case errors.Is(err, statestore.ErrService) || errors.Is(err, statestore.ErrPayload):
			t.Errorf("%+v: %v", ask, err)
			return
		case err == nil || ask.verb != "GET":
			h.record(number, key, call, ask, got, err != nil)
		}
		if ask.verb == "GET" {
			seen[key] = got.value
		}
	}
}

// send sends a request and waits a second for its response.
func (ask request) send(store *client) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	const timeout = statestore.WithTimeout(time.Second)
	var got response
	var err error
	switch ask.verb {
	case "GET":
		var done *statestore.Response[string]
		if done, err = store.Get(ctx, ask.key, timeout); err == nil {
			got = response{value: done.Value, version: done.Version}
			if !done.Version.IsZero() {
				got.number = 1
			}
		}
	case "SET":
		var done *statestore.Response[bool]
		if done, err = store.Set(ctx, ask.key, ask.value, timeout, ask.condition); err == nil {
			got = response{number: -1, version: done.Version}
			if done.Value {
				got.number = 1
			}
		}
	default:
		var done *statestore.Response[int]
		if ask.verb == "DEL" {
			done, err = store.Del(ctx, ask.key, timeout)
		} else {
			done, err = store.VDel(ctx, ask.key, ask.value, timeout)
		}
		if err == nil {
			got = response{number: done.Value, version: done.Version}
		}
	}
	got.unknown = err != nil
	return got, err
}

// requests is the history of the clients at a broker. During it, disturb is called
// after every thousand responses.
func requests(t *testing.T, at place, lasts time.Duration, disturb func()) *history {
	t.Helper()
	stores := clientsAt(t, at)
	h := newHistory(lasts)
	var running sync.WaitGroup
	for number, store := range stores {
		running.Go(func() { h.sends(t, store, number) })
	}
	for count := 1_000; disturb != nil && time.Now().Before(h.end); count += 1_000 {
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

func clientsAt(t *testing.T, at place) []*client {
	t.Helper()
	var stores []*client
	for number := range clients {
		// Ids of earlier rounds have messages in their sessions.
		id := fmt.Sprintf("client-%d-%d", number, rand.Uint64())
		stores = append(stores, clientOf[string, string](t, session(t, id, mqtt.TCPConnection("127.0.0.1", at.port)), application(t)))
	}
	return stores
}

func TestRequestsAreLinearizable(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		at := startStore(t, "--listen", "127.0.0.1:0")
		requests(t, at, phaseTime(), nil).passes(t, registers)
	})
	t.Run("behind cuts and repetitions", func(t *testing.T) {
		t.Parallel()
		proxy, running := startProxy(t, startStore(t, "--listen", "127.0.0.1:0"))
		requests(t, proxy, phaseTime(), nil).passes(t, registers)
		disturbed(t, running)
	})
	t.Run("beside mosquitto, killed", func(t *testing.T) {
		t.Parallel()
		broker, kill := startMortal(t, "--data-dir", t.TempDir(), "--durable", "all")
		requests(t, broker, phaseTime(), kill).passes(t, registers)
	})
}

// A store that is killed forgets what is not durable.
func TestAStoreThatForgetsIsCaught(t *testing.T) {
	broker, kill := startMortal(t)
	caught(t, registers, func() *history { return requests(t, broker, 4*time.Second, kill) })
}

// caught repeats a run with a fault until the checker finds it.
func caught(t *testing.T, model porcupine.Model, run func() *history) {
	t.Helper()
	for range 10 {
		if run().check(t, model) != nil {
			return
		}
	}
	t.Fatal("the checker does not find the fault")
}

// startMortal starts a store beside mosquitto, and returns a function that kills and restarts it.
func startMortal(t *testing.T, arguments ...string) (place, func()) {
	t.Helper()
	broker := startMosquitto(t)
	arguments = append([]string{"serve", "--broker", fmt.Sprintf("mqtt://127.0.0.1:%d", broker.port)}, arguments...)
	_, running := startCommand(t, statestoreCommand(t), readyOn, arguments...)
	return broker, func() {
		running.kill()
		_, running = startCommand(t, statestoreCommand(t), readyOn, arguments...)
	}
}

const faults = `
[[fault]]
kind = "cut"
probability = 0.001
[[fault]]
kind = "cut-inside"
probability = 0.001
[[fault]]
kind = "drop"
probability = 0.001
cut-after = "100ms"
[[fault]]
kind = "drop"
packet = "puback"
probability = 0.001
cut-after = "100ms"
[[fault]]
kind = "repeat"
probability = 0.05
[[fault]]
kind = "hold"
for = "1500ms"
probability = 0.0003
`

var proxyOn = regexp.MustCompile(`mqtt://127\.0\.0\.1:(\d+),`)

// startProxy starts a proxy with faults.
func startProxy(t *testing.T, at place) (place, *process) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "faults.toml")
	if err := os.WriteFile(file, []byte(faults), 0o644); err != nil {
		t.Fatal(err)
	}
	command := commandOf(t, "STATESTORE_TOOLS_BIN", "statestore-tools")
	return startCommand(t, command, proxyOn, "proxy", "--listen", "127.0.0.1:0",
		"--broker", fmt.Sprintf("mqtt://127.0.0.1:%d", at.port), "--faults", file)
}

// disturbed checks that the proxy injected each kind of fault.
func disturbed(t *testing.T, proxy *process) {
	t.Helper()
	for _, kind := range []string{"cut", "cut-inside", "drop", "repeat", "hold"} {
		if !strings.Contains(proxy.printed.String(), ": "+kind+" ") {
			t.Errorf("the proxy injected no %s", kind)
		}
	}
}
