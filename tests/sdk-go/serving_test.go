package sdkgo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
	"github.com/Azure/iot-operations-sdks/go/protocol"
	"github.com/Azure/iot-operations-sdks/go/protocol/hlc"
	"github.com/Azure/iot-operations-sdks/go/services/statestore"
)

// Nothing here takes that long unless it hangs.
const hangs = time.Minute

// place is where a store can be reached.
type place struct{ port uint16 }

// everywhere runs a test against both forms of serving, side by side since most
// of the time is waiting; arguments are for serve.
func everywhere(t *testing.T, test func(*testing.T, place), arguments ...string) {
	t.Helper()
	delivering(t, test, arguments...)
	t.Run("with mosquitto", func(t *testing.T) {
		t.Parallel()
		broker := startMosquitto(t)
		url := fmt.Sprintf("mqtt://127.0.0.1:%d", broker.port)
		startStore(t, append([]string{"--broker", url}, arguments...)...)
		test(t, broker)
	})
}

// delivering runs a test only where the broker delivers notifications that
// nobody subscribed to.
func delivering(t *testing.T, test func(*testing.T, place), arguments ...string) {
	t.Helper()
	t.Run("own broker", func(t *testing.T) {
		t.Parallel()
		at := startStore(t, append([]string{"--listen", "127.0.0.1:0"}, arguments...)...)
		test(t, at)
	})
	t.Run("own broker with a policy", func(t *testing.T) {
		t.Parallel()
		own := []string{"--listen", "127.0.0.1:0", "--policy", "policy.yaml"}
		at := startStore(t, append(own, arguments...)...)
		test(t, at)
	})
}

var readyOn = regexp.MustCompile(`ready on mqtt://127\.0\.0\.1:(\d+)`)

// commandOf is the path of a command.
func commandOf(t *testing.T, name string) string {
	t.Helper()
	variable := strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_BIN"
	command := os.Getenv(variable)
	if command == "" {
		t.Fatalf("%[1]s is not set: `cargo build -p %[2]s`, then %[1]s=target/debug/%[2]s", variable, name)
	}
	// go test runs in this directory, whoever sets the variable mostly stands at the root.
	if _, err := os.Stat(command); err != nil && !filepath.IsAbs(command) {
		command = filepath.Join("..", "..", command)
	}
	return command
}

func startStore(t *testing.T, arguments ...string) place {
	t.Helper()
	at, _ := startServe(t, arguments...)
	return at
}

func startServe(t *testing.T, arguments ...string) (place, *process) {
	t.Helper()
	return startCommand(t, "statestore", readyOn, append([]string{"serve"}, arguments...)...)
}

// startCommand starts a command that prints its port.
func startCommand(t *testing.T, name string, ready *regexp.Regexp, arguments ...string) (place, *process) {
	t.Helper()
	running, err := start(t, ready, commandOf(t, name), arguments...)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseUint(running.ready[1], 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return place{uint16(port)}, running
}

var mosquittoRuns = regexp.MustCompile(`mosquitto version \S+ running`)

func startMosquitto(t *testing.T) place {
	t.Helper()
	// Debian puts daemons where ordinary users do not look.
	var command string
	for _, name := range []string{"mosquitto", "/usr/sbin/mosquitto", "/usr/local/sbin/mosquitto", "/opt/homebrew/sbin/mosquitto"} {
		if found, err := exec.LookPath(name); err == nil {
			command = found
			break
		}
	}
	if command == "" {
		t.Skip("there is no mosquitto here (apt-get install mosquitto)")
	}
	file := filepath.Join(t.TempDir(), "mosquitto.conf")
	var err error
	// Somebody else may take the port before mosquitto does; then another is tried.
	for range 5 {
		port := freePort(t)
		lines := fmt.Sprintf("listener %d 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n", port)
		if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err = start(t, mosquittoRuns, command, "-c", file); err == nil {
			return place{port}
		}
	}
	t.Fatal(err)
	return place{}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

// process is a process that runs until the test ends.
type process struct {
	// ready is the match in its output.
	ready   []string
	printed lines
	// kill ends the process with SIGKILL and waits for its end.
	kill func()
}

// start runs a process until the test ends, and waits for a line of its output
// that matches ready. If the test fails, it shows the output.
func start(t *testing.T, ready *regexp.Regexp, command string, arguments ...string) (*process, error) {
	t.Helper()
	// No clean-up runs when go test gives up on a test that hangs, so the process goes before that.
	deadline, ok := t.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Hour)
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline.Add(-2*time.Second))
	output, input := io.Pipe()
	child := exec.CommandContext(ctx, command, arguments...)
	child.Stdout, child.Stderr = input, input
	if err := child.Start(); err != nil {
		cancel()
		return nil, err
	}

	running := &process{}
	found := make(chan []string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(found)
		scanner := bufio.NewScanner(output)
		for scanner.Scan() {
			running.printed.add(scanner.Text())
			if said := ready.FindStringSubmatch(scanner.Text()); said != nil {
				select {
				case found <- said:
				default:
				}
			}
		}
	}()
	go func() {
		defer close(ended)
		_ = child.Wait()
		_ = input.Close()
	}()
	running.kill = func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		running.kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", filepath.Base(command), running.printed.String())
		}
	})

	select {
	case said, ok := <-found:
		if ok {
			running.ready = said
			return running, nil
		}
		return nil, fmt.Errorf("%s ended before it was ready:\n%s", command, running.printed.String())
	case <-time.After(hangs):
		return nil, errors.New(command + " does not get ready")
	}
}

// lines is the output of a process, written and read by two goroutines.
type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += line + "\n"
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// client is the SDK's client of the store, for text.
type client = statestore.Client[string, string]

// connect starts an application of the SDK that goes when the test ends.
func connect(t *testing.T, at place, id string) *client {
	t.Helper()
	return clientOf[string, string](t, session(t, id, mqtt.TCPConnection("127.0.0.1", at.port)), application(t))
}

func application(t *testing.T, options ...protocol.ApplicationOption) *protocol.Application {
	t.Helper()
	application, err := protocol.NewApplication(options...)
	if err != nil {
		t.Fatal(err)
	}
	return application
}

// session is an MQTT session that is connected.
func session(t *testing.T, id string, dial mqtt.ConnectionProvider, options ...mqtt.SessionClientOption) *mqtt.SessionClient {
	t.Helper()
	session, err := mqtt.NewSessionClient(id, dial, options...)
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 1)
	forget := session.RegisterConnectEventHandler(func(*mqtt.ConnectEvent) { connected <- struct{}{} })
	defer forget()
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Stop() })
	receive(t, connected)
	return session
}

// clientOf is a client over a session that is connected already: a client that
// is there before the session connects tells an invented notification of every
// key it watches by the time it learns of the connection.
func clientOf[K, V statestore.Bytes](
	t *testing.T,
	session *mqtt.SessionClient,
	application *protocol.Application,
) *statestore.Client[K, V] {
	t.Helper()
	client, err := statestore.New[K, V](application, session)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Start(timely(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// timely is a context for calls that must not hang.
func timely(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	t.Cleanup(cancel)
	return ctx
}

// receive takes the next element of a channel.
func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value, ok := <-from:
		if !ok {
			t.Fatal("the channel was closed")
		}
		return value
	case <-time.After(hangs):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

// eventually waits for something that nobody notifies of.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(hangs); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

// pass lets a time go by on the store's own clock: it waits for a key to expire.
func pass(t *testing.T, through *client, time time.Duration) {
	t.Helper()
	set(t, through, "an hourglass", "", statestore.WithExpiry(time))
	eventually(t, "the hourglass runs out", func() bool { return get(t, through, "an hourglass").Version.IsZero() })
}

// set is a SET that the store must apply.
func set(t *testing.T, on *client, key, value string, options ...statestore.SetOption) hlc.HybridLogicalClock {
	t.Helper()
	done, err := on.Set(timely(t), key, value, options...)
	if err != nil {
		t.Fatalf("SET %q: %v", key, err)
	}
	if !done.Value {
		t.Fatalf("SET %q was not applied", key)
	}
	if done.Version.IsZero() {
		t.Fatalf("SET %q has no version", key)
	}
	return done.Version
}

func get(t *testing.T, on *client, key string) *statestore.Response[string] {
	t.Helper()
	got, err := on.Get(timely(t), key)
	if err != nil {
		t.Fatalf("GET %q: %v", key, err)
	}
	return got
}

// holds checks the value of a key that must be there.
func holds(t *testing.T, on *client, key, value string) {
	t.Helper()
	switch got := get(t, on, key); {
	case got.Version.IsZero():
		t.Fatalf("%q is absent, not %q", key, value)
	case got.Value != value:
		t.Fatalf("%q is %q, not %q", key, got.Value, value)
	}
}

func absent(t *testing.T, on *client, key string) {
	t.Helper()
	if got := get(t, on, key); !got.Version.IsZero() || got.Value != "" {
		t.Fatalf("%q is there: %q at %s", key, got.Value, got.Version)
	}
}
