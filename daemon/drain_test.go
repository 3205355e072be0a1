package daemon

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/session"
	"github.com/redlockd/redlockd/daemon/state"
	"github.com/redlockd/redlockd/systemd"
)

// startToDrain starts a daemon whose drain lasts as long as a test waits for anything.
func startToDrain(t *testing.T, change func(*config.Config)) (d *testDaemon, log *daemontest.Log) {
	log = &daemontest.Log{}
	d = &testDaemon{daemontest.NewDev(t, serve)}
	d.Daemon.Log = logging.New(log, hclog.Info, logging.Text)
	d.Cfg.Drain = 10 * daemontest.Patience
	if change != nil {
		change(d.Cfg)
	}
	d.Start()
	return d, log
}

// stopInBackground stops the daemon, and returns when it drains. The channel is closed when it has
// ended.
func stopInBackground(t *testing.T, d *testDaemon, log *daemontest.Log) (ended chan struct{}) {
	t.Helper()
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		if err := d.Stop(); err != nil {
			t.Errorf("the daemon ended with %v", err)
		}
	}()
	log.Await(t, "draining: new locks are refused")
	return ended
}

func awaitEnd(t *testing.T, ended chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(daemontest.Patience):
		t.Fatal("the daemon still runs")
	}
}

// A daemon that drains refuses new and waiting LOCKs with SHUTDOWN, and still does everything else,
// also for clients that connect now. It ends when the last held lock is released, before the time
// is over.
func TestDrainWaitsForHeldLocks(t *testing.T) {
	d, log := startToDrain(t, nil)
	holder, waiter := d.dial(), d.dial()
	lease := holder.Say("LOCK a ttl=3s reentrant=yes", granted5+` count=1`)[0]
	holder.Say("LOCK b hold=pid", granted(`b`))
	holder.Say("LOCK c hold=ttl ttl=30s", granted(`c`)) // it ends by itself
	waiter.Send("@1 LOCK a")
	waiter.Send("@2 TRY x reentrant=yes owner=1")
	waiter.Want(`@2 OK .*`)
	holder.Until("LIST", `state=waiting`)
	ended := stopInBackground(t, d, log)
	const refusal = `ERR SHUTDOWN lock=\w drain=\d+ : .*redlockd is stopping: it waits up to \d\S* for held locks, and grants no new ones`
	waiter.Want(`@1 ` + refusal)
	waiter.Say("LOCK y", refusal)
	waiter.Say("TRY y wait=0", refusal)
	waiter.Say("UNLOCK x owner=1", `OK lock=x`)

	later := d.dial()
	later.Say("LOCK y", refusal)
	later.Until("STATUS", `draining=\d+.* : draining: redlockd is stopping and grants no new locks; it ends when 2 held locks have ended, in at most \S+; locks work`)
	holder.Say("LOCK a reentrant=yes", granted5+` count=2`) // the owner has it already
	holder.Say("UNLOCK a", `OK lock=a count=1`)
	deadline := holder.Say("CHECK a", granted5+`.*`)[2]
	daemontest.Eventually(t, "the lease is extended", func() bool { return holder.Say("CHECK a", granted5+`.*`)[2] != deadline })
	select {
	case <-ended:
		t.Fatal("the daemon ended, although locks are held")
	default:
	}
	later.Say("UNLOCK lease="+lease, `OK lock=a`)
	holder.Say("UNLOCK b", `OK lock=b`)
	holder.Want(`BYE resume=.*`)
	awaitEnd(t, ended)
	if text := log.String(); !strings.Contains(text, "drained:") || !strings.Contains(text, "leases_left=0") {
		t.Errorf("logged:\n%s", text)
	}
}

// /readyz reports a drain, and /healthz does not.
func TestReadyzDrains(t *testing.T) {
	d, log := startToDrain(t, func(cfg *config.Config) { cfg.Metrics = &config.Metrics{Address: freeAddress(t)} })
	holder := d.dial()
	holder.Say("LOCK a", granted5)
	ended := stopInBackground(t, d, log)
	for path, want := range map[string]int{"/readyz": http.StatusServiceUnavailable, "/healthz": http.StatusOK} {
		response, err := http.Get("http://" + d.Cfg.Metrics.Address + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, response.Status, want)
		}
	}
	holder.Say("UNLOCK a", `OK lock=a`)
	awaitEnd(t, ended)
}

// A drain ends when its time is over, and the leases stay on the nodes. A daemon that nobody holds
// a lock of ends at once.
func TestDrainEnds(t *testing.T) {
	for what, c := range map[string]struct {
		drain time.Duration
		held  bool
	}{"its time is over": {300 * time.Millisecond, true}, "no lock is held": {10 * daemontest.Patience, false}} {
		d, log := startToDrain(t, func(cfg *config.Config) { cfg.Drain = c.drain })
		w := d.dial()
		w.Say("PING", `OK`)
		if c.held {
			w.Say("LOCK a", granted5)
		}
		begin := time.Now()
		awaitEnd(t, stopInBackground(t, d, log))
		if took := time.Since(begin); c.held && took < c.drain {
			t.Errorf("%s: it ended after %v, want %v", what, took, c.drain)
		}
		w.Want(`BYE resume=.*`)
	}
}

// If the service manager stores connections, the daemon drains only if the host shuts down: a restart
// refuses nobody. Without a store it always drains. Without drain it never does.
func TestMustDrain(t *testing.T) {
	manager := managerOf(t)
	for _, c := range []struct {
		drain  time.Duration
		stored bool
		state  string // of the system
		want   bool
	}{
		{time.Second, false, "running", true},
		{time.Second, true, "running", false},
		{time.Second, true, "stopping", true},
		{time.Second, true, "unknown", false},
		{0, false, "stopping", false},
		{0, true, "stopping", false},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "systemctl"), []byte("#!/bin/sh\necho "+c.state+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		d := &daemon{Host: &session.Host{Cfg: &config.Config{Drain: c.drain}, Log: hclog.NewNullLogger()}}
		if c.stored {
			d.Store = &state.ConnStore{}
		}
		if got := d.mustDrain(manager); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// managerOf returns a service manager that reads messages.
func managerOf(t *testing.T) *systemd.Manager {
	t.Helper()
	path := filepath.Join(daemontest.ShortDir(t), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	manager, err := systemd.FromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	return manager
}
