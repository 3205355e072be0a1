package daemon

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/daemon/state/statefile"
	"github.com/redlockd/redlockd/systemd"
)

// If a process cannot replace itself, it ends as if it had been killed: the next daemon gets the
// socket and the leases. It has passed everything by then.
func TestFailedReplace(t *testing.T) {
	if systemd.MayReplace() != nil {
		t.Skip("a process cannot replace itself here")
	}
	d := &testDaemon{daemontest.New(t, 3, serve, nil)}
	var log daemontest.Log
	ready, ended, names := make(chan struct{}), make(chan error, 1), []string{}
	go func() {
		ended <- Run(t.Context(), d.Cfg, logging.New(&log, hclog.Info, logging.Text), RunOptions{Reload: d.Reload, Ready: func() { close(ready) }, Replace: func(passed []systemd.Passed) error {
			for _, p := range passed {
				name, _, _ := strings.Cut(p.Name, "-")
				names = append(names, name)
			}
			return errors.New("no memory")
		}})
	}()
	log.Await(t, "serving: ")
	<-ready
	lease := d.dial().Say("LOCK job ttl=20s", granted5)[0]
	next := *d.Cfg
	next.Drain = time.Second
	d.Reload <- &next
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "restart in place failed") || !strings.Contains(err.Error(), "no memory") {
		t.Errorf("got %v, want the reason", err)
	}
	if got := strings.Join(names, " "); got != "socket lock config mark unstored" {
		t.Errorf("it passed %q", got)
	}
	d.Start()
	d.dial().Say("RESUME job lease="+lease, granted5)
}

// A process that cannot replace itself says that a restart is needed, and continues.
func TestReplaceIsRefused(t *testing.T) {
	var log daemontest.Log
	d := &testDaemon{daemontest.New(t, 3, serve, nil)}
	d.Log = logging.New(&log, hclog.Info, logging.Text)
	d.Start()
	w := d.dial()
	w.Say("LOCK job ttl=20s", granted5)
	next := *d.Cfg
	next.Lease.Linger = time.Second
	d.Reload <- &next
	log.Await(t, `the old one stays in effect: error="a restart is needed to change lease: this process cannot replace itself"`)
	w.Say("CHECK job", granted5)
}

// A daemon whose list of nodes was replaced takes another list by a reload, but only when it holds no lock,
// and if the nodes do not refuse that list.
func TestReplacedListIsReloaded(t *testing.T) {
	if systemd.MayReplace() != nil {
		t.Skip("a process cannot replace itself here")
	}
	var log daemontest.Log
	d := &testDaemon{daemontest.New(t, 3, serve, nil)}
	replaced, ended := errors.New("replaced"), make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), d.Cfg, logging.New(&log, hclog.Info, logging.Text), RunOptions{Reload: d.Reload, Replace: func([]systemd.Passed) error { return replaced }})
	}()
	log.Await(t, "serving: ")
	w := d.dial()
	w.Say("LOCK job ttl=20s", granted5)
	named := func(names string) *config.Config {
		next := *d.Cfg
		next.Quorum.Nodes = slices.Clone(d.Cfg.Quorum.Nodes)
		for i := range names {
			next.Quorum.Nodes[i].Name = names[i : i+1]
		}
		return &next
	}
	const refused = "the list of nodes cannot change at once"
	d.Reload <- named("xyz")
	log.AwaitThat(t, "a list that was not replaced stays", func(log string) bool { return strings.Count(log, refused) == 1 })

	d.commit(2)
	log.Await(t, "this host's config has the old list")
	d.Reload <- named("xyz")
	log.AwaitThat(t, "a lock is held", func(log string) bool { return strings.Count(log, refused) == 2 })
	w.Say("UNLOCK job", "OK lock=job.*")
	d.Reload <- named("abx")
	log.Await(t, "the nodes refuse this config")
	d.Reload <- named("xyz") // this process knows no node of that list
	log.Await(t, "restarting in place with other nodes")
	if err := <-ended; !errors.Is(err, replaced) {
		t.Errorf("it ended with %v", err)
	}
}

func TestCheckMetrics(t *testing.T) {
	metrics := func(address string) *config.Metrics { return &config.Metrics{Address: address} }
	for _, c := range []struct {
		now, next *config.Metrics
		want      string
	}{
		{nil, nil, ""},
		{metrics("127.0.0.1:1"), nil, ""},
		{metrics("192.0.2.1:1"), metrics("192.0.2.1:1"), ""}, // it is retried, as at the start
		{nil, metrics("127.0.0.1:0"), ""},
		{nil, metrics("192.0.2.1:0"), "metrics.address: "},
		{metrics("127.0.0.1:0"), metrics("192.0.2.1:0"), "metrics.address: "},
	} {
		err := checkMetrics(c.now, c.next)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %v to %v: got %v, want %q", c.now, c.next, err, c.want)
		}
	}
}

// commit makes a node refuse hosts with the list of this daemon: a change to another list is committed there.
func (d *testDaemon) commit(node int) {
	d.T.Helper()
	server := d.Nodes.Servers[node]
	reply, err := server.Do("HGET", "redlockd:node", "epoch")
	if err != nil {
		d.T.Fatal(err)
	}
	parts := strings.Split(reply.Str, ":")
	parts[4] += ">other>committed"
	if _, err := server.Do("HSET", "redlockd:node", "epoch", strings.Join(parts, ":")); err != nil {
		d.T.Fatal(err)
	}
}

// A daemon whose list of nodes was replaced remembers that over a restart: it does not take nodes that lost their data
// since for new ones. Guards Journal.ListReplaced, Quorum.NoteReplacedList.
func TestReplacedListIsRemembered(t *testing.T) {
	d := &testDaemon{daemontest.New(t, 3, serve, func(cfg *config.Config) { cfg.Quorum.MaxTTL, cfg.Lease.TTL = time.Second, time.Second })}
	var log daemontest.Log
	d.Log = logging.New(&log, hclog.Info, logging.Text)
	d.Start()
	for node := range 3 {
		d.commit(node)
	}
	log.Await(t, "this host's config has the old list")
	daemontest.Eventually(t, "it is in the state file", func() bool {
		files, err := filepath.Glob(statefile.PathFor(d.Cfg.Socket.Path) + ".*")
		return err == nil && slices.ContainsFunc(files, func(name string) bool { return strings.Contains(readTestFile(t, name), "n\x101>3-") }) // a record and its length
	})
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, server := range d.Nodes.Servers {
		if _, err := server.Do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
	}
	d.Start()
	log.Await(t, "its list of nodes was replaced")
	if strings.Contains(log.String(), "node is ready") && strings.LastIndex(log.String(), "node is ready") > strings.Index(log.String(), "has the old list") {
		t.Errorf("a node is taken for a new one:\n%s", log.String())
	}
}
