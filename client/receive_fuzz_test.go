package client

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/ipc"
)

// FuzzReceive: a daemon sends anything to a client that has two LOCKs and queries under way, and
// unlocks its leases in between. Every call returns, a lock is held only if its request was
// granted, no call is left, and in the end no lease is held.
func FuzzReceive(f *testing.F) {
	const grant = " OK lock=job lease=abc fence=77 ttl=10000 deadline=1010000\n"
	for _, seed := range []struct{ first, then string }{
		{"@0" + grant + "@1 ERR HELD lock=other host=web3 pid=7 : held\n@2 - lock=job host=web3\n@2 OK n=1\n@3 OK nodes=5 spare=2\n", "@0 OK lock=job\n"},
		{"@1" + grant + "@0" + grant, "@0 ERR LOST\n@1 ERR NOTHELD\n"},
		{"@0" + grant + "LOST lock=job lease=abc reason=quorum : gone\n", "BYE resume=1000\n"},
		{"@00" + grant, "@01" + grant}, // for tags that no request has
		{"@0 OK\n", ""},
		{"@0 OK lease=abc deadline=99999999999999999999\n", ""},
		{"@0 OK lease=abc deadline=-1\n", "@0 OK\n"},
		{"@0 OK lease=a,b deadline=9223372036854\n@0 OK\n", "@0 OK\n"},
		{"@2 -\n@2 - x\n@2 OK\nBACK\n\n", "@zz OK\n"},
		{"OK\nERR DENIED\n@3 ERR x\n", "\x00\xff"},
		{strings.Repeat("x", ipc.MaxLine+1), "\n"},
	} {
		f.Add([]byte(seed.first), []byte(seed.then))
	}
	f.Fuzz(func(t *testing.T, first, then []byte) {
		synctest.Test(t, func(t *testing.T) { hearAnything(t, first, then) })
	})
}

func hearAnything(t *testing.T, first, then []byte) {
	c, d := dialScripted(t)
	sent := requests{tags: map[ipc.Verb]string{}}
	go sent.read(d) // until the connection ends
	locked := async(func() (*Lease, error) { return c.Lock(t.Context(), "job") })
	synctest.Wait()
	tried := async(func() (*Lease, error) { return c.TryLock(t.Context(), "other") })
	synctest.Wait()
	looked := async(func() ([]Holder, error) { return c.Who(t.Context(), "job") })
	synctest.Wait()
	tags := sent.take()

	d.conn.Write(first) // an error means that the client has ended the connection
	synctest.Wait()
	leases := granted(locked, tried)
	unlocked := map[*Lease]unlock{}
	for _, l := range leases {
		result := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		synctest.Wait()
		unlocked[l] = unlock{sent.take()[ipc.VerbUnlock], result}
	}
	d.conn.Write(then)
	synctest.Wait()
	leases = append(leases, granted(locked, tried)...)
	d.conn.Close()
	synctest.Wait()
	c.Close()
	synctest.Wait()

	all := slices.Concat(first, then)
	for _, l := range leases {
		verb := map[string]ipc.Verb{"job": ipc.VerbLock, "other": ipc.VerbTry}[l.Name()]
		if reply, _ := answer(all, tags[verb]); reply == nil || reply.Kind != ipc.KindOK || text(reply, "lease") != l.ID() || uint64(number(reply, "fence")) != l.Fence() {
			t.Errorf("the lease %q of %s with fence %d was granted; the answer to @%s in %q was %+v", l.ID(), l.Name(), l.Fence(), tags[verb], all, reply)
		}
		if endCause(l.Context()) == nil || l.Validity() != 0 {
			t.Errorf("the lease %q of %s is held without a connection, valid for %v", l.ID(), l.Name(), l.Validity())
		}
	}
	for l, u := range unlocked {
		if _, err := u.result.wait(); err != nil {
			continue
		}
		if reply, _ := answer(all[bytes.LastIndexByte(first, '\n')+1:], u.tag); reply == nil || reply.Kind != ipc.KindOK {
			t.Errorf("the lease %q of %s was unlocked; the answer to @%s in %q and then %q was %+v", l.ID(), l.Name(), u.tag, first, then, reply)
		}
	}
	if holders, err := looked.wait(); err == nil {
		if reply, lines := answer(all, tags[ipc.VerbWho]); reply == nil || reply.Kind != ipc.KindOK || len(holders) != lines {
			t.Errorf("%d holders; the answer to @%s in %q had %d lines and was %+v", len(holders), tags[ipc.VerbWho], all, lines, reply)
		}
	}
	if late := granted(locked, tried); len(late) > 0 {
		t.Errorf("%q was granted when the connection had ended", late[0].ID())
	}
	nothingLeft(t, c)
}

// unlock is an Unlock in progress.
type unlock struct {
	tag    string
	result future[int]
}

// granted returns the leases of calls that were granted since the last call of granted.
func granted(calls ...future[*Lease]) (leases []*Lease) {
	for _, call := range calls {
		if call.pending() {
			continue
		}
		if l, err := call.wait(); err == nil {
			leases = append(leases, l)
		}
	}
	return leases
}

// answer returns the first reply with that tag in the output of the daemon, and the number of lines
// before it. Without one it returns nil.
func answer(said []byte, tag string) (reply *ipc.Response, lines int) {
	for line := range bytes.Lines(said) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		var r ipc.Response
		if !whole || ipc.ParseResponse(line, &r) != nil {
			return nil, lines
		}
		switch {
		case r.Tag != tag || r.Kind == ipc.KindEvent:
		case r.Kind == ipc.KindLine:
			lines++
		default:
			return &r, lines
		}
	}
	return nil, lines
}

// requests collects the tags that a client has sent, by verb.
type requests struct {
	mu   sync.Mutex // guards tags
	tags map[ipc.Verb]string
}

func (r *requests) read(d *scripted) {
	for line := d.line(); line != ""; line = d.line() {
		var req ipc.Request
		if ipc.ParseRequest([]byte(strings.TrimSuffix(line, "\n")), &req) == nil {
			r.mu.Lock()
			r.tags[req.Verb] = req.Tag
			r.mu.Unlock()
		}
	}
}

// take returns the tags sent since the last call of take.
func (r *requests) take() map[ipc.Verb]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	tags := r.tags
	r.tags = map[ipc.Verb]string{}
	return tags
}
