package daemon

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// TestEmbeddedNodesConform: what -dev embeds answers as a real node does, as
// far as it goes.
func TestEmbeddedNodesConform(t *testing.T) {
	redlocktest.Conformance(t, embeddedTarget{})
}

type embeddedTarget struct{}

func (embeddedTarget) Lacks(redlocktest.Feature) bool { return true }

func (embeddedTarget) Run(t *testing.T, body func(*testing.T, redlocktest.Subject)) {
	server, err := startMiniredis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	body(t, &embeddedSubject{server: server})
}

type embeddedSubject struct {
	server *miniredis.Miniredis
	down   bool
}

func (s *embeddedSubject) Node() redlock.Node {
	return redlock.RedisNode(redlock.NodeOptions{Name: "m", Address: "embedded", Dial: func(context.Context) (net.Conn, error) {
		if s.down {
			return nil, errors.New("down")
		}
		return dialMiniredis(s.server)
	}})
}

func (s *embeddedSubject) Down() {
	s.down = true
	s.server.Close()
}

func (s *embeddedSubject) Up() {
	first, err := s.server.Dial() // starts it again
	if err == nil {
		first.Close()
	}
	s.down = false
}

func (s *embeddedSubject) Hang()   {}
func (s *embeddedSubject) Resume() {}

// startDev is a daemon with embedded nodes.
func startDev(t *testing.T) *testDaemon {
	t.Helper()
	cfg := config.Dev()
	cfg.Socket = config.Socket{Path: filepath.Join(shortDir(t), "s"), Mode: 0o600}
	d := &testDaemon{t: t, cfg: cfg, reload: make(chan *config.Config), dev: true}
	d.start()
	return d
}

// TestDev: five nodes in the process, whose TTLs run.
func TestDev(t *testing.T) {
	d := startDev(t)
	a, b := d.dial(), d.dial()
	a.until("STATUS", `spare=2\b`) // a busy machine: three nodes are enough to start with
	a.say("LOCK a", granted5)
	b.say("TRY a", `ERR HELD lock=a .*`)
	b.say("WHO a", `- lock=a .* held=5 nodes=5`)
	b.want(`OK n=1`)
	a.say("UNLOCK a", `OK lock=a`)
	start := redlock.BootTime()
	a.say("LOCK a hold=ttl ttl=300ms", granted5)
	a.want(`LOST lock=a .* reason=expired .*`)
	b.say("LOCK a", granted5)
	if took := redlock.BootTime() - start; took < 250*time.Millisecond {
		t.Errorf("free after %v: before the lease was over", took)
	}
	b.conn.Close()
	a.until("WHO a", `^OK n=0\n$`)
}

// TestDevKinds: embedded nodes know every kind; who waits asks them again.
func TestDevKinds(t *testing.T) {
	t.Parallel() // it mostly waits
	cfg := config.Dev()
	cfg.Socket.Path = t.TempDir() + "/s"
	d := &testDaemon{t: t, cfg: cfg, dev: true}
	d.start()
	w, other := d.dial(), d.dial()
	w.until("STATUS", `spare=2\b`)
	for _, kind := range kinds {
		lease := w.say("LOCK "+kind.names+kind.options+" ttl=9s", kind.grant)[0]
		other.say("TRY a", `ERR HELD .*`)
		other.say("WHO a", `- lock=a mode=\w+ .* nodes=5`)
		other.want(`OK n=1`)
		w.say("EXTEND lease="+lease+" ttl=10s", kind.grant)
		other.waits(w, "LOCK a,c", 1)
		w.say("UNLOCK "+kind.names, `OK lock=`+kind.names)
		other.want(granted(`a,c`))
		other.say("UNLOCK a,c", `OK lock=a,c`)
		w.say("LOCK "+kind.names+kind.options+" ttl=600ms hold=ttl", kind.grant)
		w.want(`LOST lock=` + kind.names + ` .* reason=expired .*`)
		other.say("LOCK a wait=10s", granted5)
		w.say("FORCE a", `OK lock=a n=1 .*`)
		other.want(`LOST .*`)
	}
	other.send("STATUS")
	other.want(`- node=a address=embedded state=ready wakeups=polling .*`)
}

// TestDevLeavesNothing: what is held ends with the nodes, and with the process.
func TestDevLeavesNothing(t *testing.T) {
	d := startDev(t)
	w := d.dial()
	w.say("LOCK a", granted5)
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	w.want(`BYE resume=0 : .* nothing is held that could be resumed: .*`)
}

// TestShutdownIsQuiet: that the daemon hangs up is not reported as five nodes
// that went down.
func TestShutdownIsQuiet(t *testing.T) {
	var log bytes.Buffer
	cfg := config.Dev()
	cfg.Socket.Path = t.TempDir() + "/s"
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, cfg, logging.New(&log, cfg.Log.Level, cfg.Log.Format), RunOptions{Dev: true, Ready: cancel})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log.Bytes(), []byte("is down")) {
		t.Errorf("the log says that nodes went down:\n%s", log.String())
	}
}
