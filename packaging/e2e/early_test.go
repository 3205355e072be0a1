//go:build linux

package e2e

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// keeps gives the daemon of a host a config that comes too early or too late: it keeps the one that it
// has, and the log, STATUS and NODES say why.
func (f *fleet) keeps(i int, before, after, why string) {
	f.t.Helper()
	f.configure(f.hosts[i], before, after)
	if err := f.daemons[i].cmd.Process.Signal(syscall.SIGHUP); err != nil {
		f.t.Fatal(err)
	}
	if line := awaitLog(f.daemons[i], "config not reloaded"); !strings.Contains(line, why) {
		f.t.Errorf("the log says %s; want %q in it", line, why)
	}
	c := f.dial(f.hosts[i])
	defer c.Close()
	status, err := c.Status(within(f.t))
	if err != nil || !status.Unreloaded || !strings.Contains(status.Text, why) {
		f.t.Errorf("STATUS: %v, %+v; want %q in its text", err, status, why)
	}
	change, err := c.Nodes(within(f.t))
	if err != nil || !strings.Contains(change.Next, why) {
		f.t.Errorf("NODES: %v, %+v; want %q in its text", err, change, why)
	}
	f.tell()
}

// refusesVerb wants a commit or an undo to be refused.
func (f *fleet) refusesVerb(i int, verb, why string) {
	f.t.Helper()
	ask := (*client.Client).CommitNodes
	if verb == "undo" {
		ask = (*client.Client).UndoNodes
	}
	if _, err := f.nodes(i, ask); !errors.Is(err, client.ErrInvalid) || !strings.Contains(err.Error(), why) {
		f.t.Errorf("%s on host %d: %v; want %q in it", verb, i, err, why)
	}
	f.tell()
}

// saysNext waits until NODES says on a host what is next.
func (f *fleet) saysNext(i int, want string) {
	f.t.Helper()
	f.until("NODES says: "+want, func() bool {
		change, err := f.nodes(i, (*client.Client).Nodes)
		return err == nil && strings.Contains(change.Next, want)
	})
}

// One node becomes three under load. Between the steps an operator takes each other step too early or too
// late. None of them costs a lease or refuses a client, and each says why it is refused. A daemon that
// starts with such a list says the same. One of the daemons gets each config by a restart, the others by SIGHUP.
func TestStepTooEarly(t *testing.T) {
	changes := [][2]string{{"a", "abc"}}
	if rounds(0, 1) == 1 {
		changes = append(changes, [][2]string{{"abc", "abcde"}, {"abcde", "abc"}}...)
	}
	const (
		atOnce = "the list of nodes cannot change at once"
		early  = "the new list of nodes gets no vote before the change is done"
		late   = "the old list gets no vote any more"
		cannot = "cannot be undone"
	)
	t.Parallel()
	f := startFleet(t, 3, 5, changes[0][0])
	f.awaitGrants()
	for _, change := range changes {
		before, after := change[0], change[1]
		f.refusesVerb(0, "commit", "has no joining or leaving nodes")
		f.keeps(0, after, after, atOnce)
		f.reload(0, before, after)
		f.keeps(0, after, after, early)
		f.restart(1, before, after, terminate)
		f.awaitStep(0, "begun")
		f.refusesVerb(0, "commit", "without this change in their config: ")
		f.refusesVerb(0, "undo", "give it the old list first")
		f.refusesVerb(2, "undo", "would begin it again: ")
		f.reload(0, before, before) // back, and forth again
		f.reload(0, before, after)
		f.reload(2, before, after)
		f.awaitStep(2, "begun")
		f.keeps(2, after, after, early)
		f.startsRefused(after, "not complete on this node")
		f.awaitGrants()

		f.commit(1)
		f.keeps(0, before, before, late)
		f.keeps(1, after, after, early)
		f.refusesVerb(2, "undo", cannot)
		f.saysNext(2, "wait about")
		f.startsRefused(before, "this host's config has the old list")
		f.awaitGrants()

		f.awaitStep(0, "done")
		f.keeps(0, before, before, late)
		f.refusesVerb(0, "undo", cannot)
		f.reload(0, after, after)
		f.keeps(0, before, before, atOnce)
		joint := []string{f.host(1), f.host(2)}
		slices.Sort(joint)
		f.saysNext(0, "Hosts that still have both: "+strings.Join(joint, ", "))
		f.awaitStep(1, "done")
		f.restart(1, after, after, terminate)
		f.awaitStep(2, "done")
		f.reload(2, after, after)
		f.saysNext(0, "no host at work has the old one")
		f.awaitGrants()
	}
	f.stopOld(changes[len(changes)-1][1])
	f.awaitGrants()
	f.leave()
	f.tell()
}

// startsRefused starts the daemon of another host with a list that gets no vote: NODES says why.
func (f *fleet) startsRefused(list, why string) {
	f.t.Helper()
	h := newHost(f.t, f.cluster)
	f.configure(h, list, list)
	d := h.serve()
	defer d.kill()
	f.until("a daemon with the list "+list+" says: "+why, func() bool {
		c := f.dial(h)
		defer c.Close()
		change, err := c.Nodes(within(f.t))
		return err == nil && strings.Contains(change.Next, why)
	})
}

// host returns the name of a daemon for operators.
func (f *fleet) host(i int) string {
	name, err := os.Hostname()
	if err != nil {
		f.t.Fatal(err)
	}
	return name + ":" + f.hosts[i].socket
}
