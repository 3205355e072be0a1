package daemon

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
)

// logged is what was logged, for any goroutine.
type logged struct {
	mu  sync.Mutex // guards out
	out bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

func duration(t *testing.T, ms string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(ms + "ms")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// patientNodes is for tests of many clients at once: no request fails on a busy machine.
func patientNodes(cfg *config.Config) { cfg.Quorum.NodeTimeout = time.Second }

func granted(names string) string {
	return strings.Replace(granted5, `lock=\S+`, `lock=`+names, 1)
}

// waits sends a LOCK, and returns when n requests wait.
func (w *wire) waits(look *wire, request string, n int) {
	w.t.Helper()
	w.send("%s", request)
	look.until("STATUS", fmt.Sprintf(`waiters=%d\b`, n))
}

func readTestFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
