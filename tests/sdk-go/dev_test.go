package sdkgo

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/iot-operations-sdks/go/mqtt"
)

// devSeconds is the variable that makes this program the command of `statestore
// dev`: it writes and reads a key for that time.
const devSeconds = "STATESTORE_TEST_DEV_SECONDS"

// TestDevApplication is the application that the other tests start. It is
// configured from the variables of the SDK alone.
func TestDevApplication(t *testing.T) {
	text := os.Getenv(devSeconds)
	if text == "" {
		t.Skip("the other tests of this file start it")
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mqtt.NewSessionClientFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	connected := make(chan struct{}, 100)
	forget := session.RegisterConnectEventHandler(func(*mqtt.ConnectEvent) { connected <- struct{}{} })
	defer forget()
	if err := session.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Stop() })
	receive(t, connected)
	store := clientOf[string, string](t, session, application(t))
	end := time.Now().Add(time.Duration(seconds) * time.Second)
	count := 0
	for {
		value := strconv.Itoa(count)
		set(t, store, "k", value)
		holds(t, store, "k", value)
		count++
		if time.Now().After(end) {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	if len(connected) > 0 {
		t.Fatal("the connection was lost")
	}
	fmt.Printf("%d values written and read\n", count)
}

// dev runs this program as the command of `statestore dev`.
func dev(t *testing.T, seconds int, options ...string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	arguments := []string{"dev", "--ports", "any", "--dir", filepath.Join(t.TempDir(), "session")}
	arguments = append(arguments, options...)
	arguments = append(arguments, "--", self, "-test.run", "^TestDevApplication$", "-test.v")
	command := exec.Command(commandOf(t, "statestore"), arguments...)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", devSeconds, seconds))
	output, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "values written and read") {
		t.Fatalf("%v:\n%s", err, output)
	}
	// The store logs rejected logins and clients whose token has expired.
	if strings.Contains(string(output), "statestore:") {
		t.Fatalf("the store printed a warning:\n%s", output)
	}
}

func TestApplicationLogsInByEachMethod(t *testing.T) {
	for _, login := range []string{"token", "certificate", "none"} {
		t.Run(login, func(t *testing.T) {
			t.Parallel()
			dev(t, 0, "--login", login)
		})
	}
}

// The first token expires after ten seconds, and the store allows ten more for
// clocks.
func TestApplicationContinuesAfterItsFirstTokenHasExpired(t *testing.T) {
	t.Parallel()
	dev(t, 25, "--token-lifetime", "10s")
}
