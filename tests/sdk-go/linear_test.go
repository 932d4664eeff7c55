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
	"sync/atomic"
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
	// checkTime is the time limit of the checker for each key. After unknownMax keys that
	// it could not check in time, and one that it could, it leaves out the others.
	checkTime, unknownMax = 30 * time.Second, 5
	// soundTime limits a run against a sound store, which needs responsesMin responses in
	// it. faultyTime limits a run against a faulty store, which needs all its responses:
	// it ends only runs that hang.
	soundTime, faultyTime, responsesMin = time.Minute, 2 * time.Minute, 20
	// leaseTime exceeds editTime, so no lease ends during an edit that succeeds.
	editTime, leaseTime = 3 * time.Second, 4 * time.Second

	timeout = statestore.WithTimeout(time.Second)
)

// depth multiplies the responses after which a run against a sound store ends.
var depth = map[bool]int{false: 1, true: 8}[os.Getenv("STATESTORE_TEST_DEPTH") == "long"]

// plan describes when the clients of a run stop, and what happens until then.
type plan struct {
	// responses is the number of responses after which the run ends; of counters, the
	// number of complete edits.
	responses int
	// limit ends a run that does not get so many.
	limit time.Duration
	// isMissing returns whether the run must continue although it has its responses.
	isMissing func() bool
	// disturb is called after every 50 responses.
	disturb func()
}

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
	t     *testing.T
	plan  plan
	start time.Time
	// prefix makes the keys new.
	prefix           string
	mu               sync.Mutex
	turns, responses int
	isStopped        bool
	operations       map[string][]porcupine.Operation
}

// worker is what one client does.
type worker func(*history, *client)

func (h *history) now() int64 { return int64(time.Since(h.start)) }

// isComplete returns whether the run has all that its plan asks for.
func (h *history) isComplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.responses >= h.plan.responses && (h.plan.isMissing == nil || !h.plan.isMissing())
}

// ends returns whether the clients must stop.
func (h *history) ends() bool {
	complete := h.isComplete()
	h.mu.Lock()
	defer h.mu.Unlock()
	return complete || h.isStopped || h.turns >= turnsMax || time.Since(h.start) > h.plan.limit
}

func (h *history) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isStopped = true
}

// reaches waits for a number of responses. It returns false if the run ends before.
func (h *history) reaches(count int) bool {
	for ; !h.ends(); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		responses := h.responses
		h.mu.Unlock()
		if responses >= count {
			return true
		}
	}
	return false
}

// turn returns a key and a value that no other request has, until the end.
func (h *history) turn() (key, value string, ok bool) {
	ok = !h.ends()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns++
	key = fmt.Sprint(h.prefix, h.turns/groupTurns*groupKeys+rand.IntN(groupKeys))
	return key, fmt.Sprint(h.turns), ok
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

// check returns Illegal and the operations of a key that no order explains. Otherwise, it
// returns Unknown if it could check no key in time.
func (h *history) check(model porcupine.Model) (porcupine.CheckResult, []porcupine.Operation) {
	h.t.Helper()
	verdict, checked, unknown := porcupine.Unknown, 0, 0
	for key, operations := range h.operations {
		switch porcupine.CheckOperationsTimeout(model, operations, checkTime) {
		case porcupine.Illegal:
			return porcupine.Illegal, operations
		case porcupine.Ok:
			verdict = porcupine.Ok
		case porcupine.Unknown:
			unknown++
			h.t.Logf("%q with %d operations could not be checked in time", key, len(operations))
		}
		checked++
		if unknown >= unknownMax && verdict == porcupine.Ok {
			break
		}
	}
	if unknown > 0 {
		h.t.Logf("%d keys, %d checked, %d of them not in time", len(h.operations), checked, unknown)
	}
	return verdict, nil
}

// passes fails the test if no order of the operations explains all responses.
func (h *history) passes(model porcupine.Model) {
	h.t.Helper()
	h.t.Logf("%d turns, %d responses in %s", h.turns, h.responses, time.Since(h.start).Round(time.Millisecond))
	if h.responses < responsesMin {
		h.t.Fatal("too few responses")
	}
	switch verdict, wrong := h.check(model); verdict {
	case porcupine.Illegal:
		h.t.Fatalf("not linearizable: %+v", wrong)
	case porcupine.Unknown:
		h.t.Fatal("no key could be checked in time")
	}
}

// expectCaught repeats a run with a fault until the checker finds it.
func expectCaught(t *testing.T, model porcupine.Model, run func() *history) {
	t.Helper()
	for number := range 10 {
		h := run()
		if verdict, _ := h.check(model); verdict == porcupine.Illegal {
			t.Logf("found in run %d", number+1)
			return
		}
		if !h.isComplete() {
			t.Fatalf("only %d responses in %s", h.responses, time.Since(h.start))
		}
	}
	t.Fatal("the checker does not find the fault")
}

// runClients is the history of eight clients.
func runClients(t *testing.T, at place, plan plan, work worker) *history {
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
	h := &history{t: t, plan: plan, start: time.Now(), prefix: fmt.Sprint(rand.Uint64(), "-"), operations: map[string][]porcupine.Operation{}}
	var running sync.WaitGroup
	defer running.Wait()
	for _, store := range stores {
		running.Go(func() { work(h, store) })
	}
	if plan.disturb != nil {
		// If it fails, the clients stop too.
		defer h.stop()
		for count := 50; h.reaches(count); count += 50 {
			plan.disturb()
		}
	}
	running.Wait()
	return h
}

// sendAllKinds is a client that sends all kinds of requests.
func sendAllKinds(h *history, store *client) {
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

// incrementUnderLock returns a client that increments a counter under its lock.
func incrementUnderLock(name func() string) worker {
	return func(h *history, store *client) {
		lock := leasedlock.NewLock(store, h.prefix+name())
		for !h.ends() {
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
	for name, test := range map[string]struct {
		requests, edits int
		run             func(*testing.T, plan, worker) *history
	}{
		"alone": {30_000, 1_000, func(t *testing.T, plan plan, work worker) *history {
			return runClients(t, startStore(t, "--listen", "127.0.0.1:0"), plan, work)
		}},
		"behind cuts and repetitions": {12_000, 400, func(t *testing.T, plan plan, work worker) *history {
			at, proxy := startProxy(t, startStore(t, "--listen", "127.0.0.1:0"), faults)
			plan.isMissing = func() bool {
				printed := proxy.printed.String()
				return !strings.Contains(printed, ": cut ") || !strings.Contains(printed, ": repeat ")
			}
			h := runClients(t, at, plan, work)
			if plan.isMissing() {
				t.Error("the proxy has not printed both a cut and a repetition")
			}
			return h
		}},
		"with mosquitto, killed": {400, 300, func(t *testing.T, plan plan, work worker) *history {
			broker, kill := startKillable(t, "--data-dir", t.TempDir(), "--durable", "all")
			plan.disturb = kill
			return runClients(t, broker, plan, work)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			requests := plan{responses: depth * test.requests, limit: soundTime}
			test.run(t, requests, sendAllKinds).passes(registers)
			edits := plan{responses: depth * test.edits, limit: soundTime}
			test.run(t, edits, incrementUnderLock(func() string { return "lock" })).passes(counters)
		})
	}
}

// A killed store forgets what is not durable.
func TestAStoreThatForgetsIsCaught(t *testing.T) {
	broker, kill := startKillable(t)
	expectCaught(t, registers, func() *history {
		var kills atomic.Int32
		return runClients(t, broker, plan{
			responses: 500,
			limit:     faultyTime,
			isMissing: func() bool { return kills.Load() < 3 },
			disturb: func() {
				kill()
				kills.Add(1)
			},
		}, sendAllKinds)
	})
}

func TestCountsWithoutACommonLockAreCaught(t *testing.T) {
	at := startStore(t, "--listen", "127.0.0.1:0")
	ownLock := func() string { return fmt.Sprint(rand.Uint64()) }
	expectCaught(t, counters, func() *history {
		return runClients(t, at, plan{responses: 500, limit: faultyTime}, incrementUnderLock(ownLock))
	})
}

// startKillable starts a store with mosquitto, and returns a function that kills and restarts it.
func startKillable(t *testing.T, arguments ...string) (place, func()) {
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
	return startCommand(t, "statestore-chaos", proxyOn, "proxy", "--listen", "127.0.0.1:0",
		"--broker", fmt.Sprintf("mqtt://127.0.0.1:%d", at.port), "--faults", file)
}
