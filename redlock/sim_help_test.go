package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

const ms = time.Millisecond

// fleet has simulated nodes and a Quorum of them, in a bubble of fake time. Instants are exact.
// The order of events at the same instant is random, so tests give delays and faults different
// instants.
type fleet struct {
	*testing.T
	sims []*redlocktest.Sim
	q    *redlock.Quorum
	now  func() time.Duration // BootTime of the bubble
}

// simTest runs body with n nodes that are up and connected.
func simTest(t *testing.T, n int, body func(t *testing.T, f *fleet), change ...func(*redlock.Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, n)
		defer f.closeSims()
		f.open(change...)
		defer f.q.Close()
		f.q.Settle(t.Context())
		synctest.Wait() // the listeners have started, too
		body(t, f)
	})
}

// newFleet makes the nodes but no Quorum.
func newFleet(t *testing.T, n int) *fleet {
	boot := time.Now().Add(-time.Hour)
	f := &fleet{T: t, now: func() time.Duration { return time.Since(boot) }}
	for i := range n {
		f.sims = append(f.sims, redlocktest.NewSim(string(rune('a'+i))))
	}
	return f
}

// open makes the Quorum.
func (f *fleet) open(change ...func(*redlock.Options)) {
	f.Helper()
	f.q = f.another(change...)
}

// another returns a second Quorum with the same nodes, as on another host.
func (f *fleet) another(change ...func(*redlock.Options)) *redlock.Quorum {
	f.Helper()
	o := redlock.Options{Prefix: "redlock:", Clock: f.now, NoQuarantine: true}
	for _, sim := range f.sims {
		o.Nodes = append(o.Nodes, sim.Node())
	}
	for _, c := range change {
		c(&o)
	}
	q, err := redlock.New(o)
	if err != nil {
		f.Fatal(err)
	}
	return q
}

func (f *fleet) closeSims() {
	for _, sim := range f.sims {
		sim.Close()
	}
}

// acquire takes a lock that is free. It returns when all nodes that answer without delay have
// answered.
func (f *fleet) acquire(r redlock.Request) *redlock.Lease {
	f.Helper()
	l, err := f.q.Acquire(f.Context(), r)
	if err != nil {
		f.Fatalf("acquire %s: %v", r.Name, err)
	}
	synctest.Wait()
	return l
}

func (f *fleet) release(l *redlock.Lease) {
	f.Helper()
	if err := l.Release(f.Context()); err != nil {
		f.Errorf("release %s: %v", l.Name(), err)
	}
}

// delay sets the time that a request to each node takes, and the time that its reply takes.
func (f *fleet) delay(request, reply func(node int) time.Duration) {
	for i, sim := range f.sims {
		sim.SetDelay(func() (time.Duration, time.Duration) { return request(i), reply(i) })
	}
}

// each returns a delay that grows with the number of the node: the first node is the fastest.
func each(unit time.Duration) func(node int) time.Duration {
	return func(node int) time.Duration { return time.Duration(node+1) * unit }
}

// every calls do for each of these nodes.
func every(sims []*redlocktest.Sim, do func(*redlocktest.Sim)) {
	for _, sim := range sims {
		do(sim)
	}
}

func hang(s *redlocktest.Sim)   { s.Hang() }
func resume(s *redlocktest.Sim) { s.Resume() }
func down(s *redlocktest.Sim)   { s.Down() }
func up(s *redlocktest.Sim)     { s.Up() }
func flush(s *redlocktest.Sim)  { s.Flush() }

// forget deletes all locks of a node and nothing else, like a user's DEL.
func forget(s *redlocktest.Sim) {
	for _, key := range s.Keys() {
		if key != nodeKey {
			s.Do("DEL", key)
		}
	}
}

// foreign sets the lock on some nodes, as another Redlock client does.
func foreign(sims []*redlocktest.Sim, name string, ttl time.Duration) {
	for _, sim := range sims {
		sim.Do("SET", "redlock:"+name, "Zm9yZWlnbiB0b2tlbg==", "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10))
	}
}

// at sleeps until after has passed since begin.
func (f *fleet) at(begin, after time.Duration) { time.Sleep(begin + after - f.now()) }

// keys returns the keys of locks on all nodes, such as "a:redlock:x".
func (f *fleet) keys() []string {
	var all []string
	for i, sim := range f.sims {
		for _, key := range sim.Keys() {
			if strings.HasPrefix(key, "redlock:") {
				all = append(all, string(rune('a'+i))+":"+key)
			}
		}
	}
	return all
}

// nodeKey is the hash in which each node keeps its own data.
const nodeKey = "redlockd:node"

func (f *fleet) wantNoKeys(when string) {
	f.Helper()
	if left := f.keys(); len(left) != 0 {
		f.Errorf("%s: keys are left on the nodes: %v", when, left)
	}
}

// wantNever checks that no key appears within span.
func (f *fleet) wantNever(when string, span time.Duration) {
	f.Helper()
	for end := f.now() + span; f.now() < end; time.Sleep(ms) {
		if left := f.keys(); len(left) != 0 {
			f.Fatalf("%s: keys appeared on the nodes: %v", when, left)
		}
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantWithin(t testing.TB, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: got %v, want %v to %v", what, got, least, most)
	}
}

func wantErr(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// wantNoQuorum checks that err names exactly these nodes, with this failure.
func wantNoQuorum(t testing.TB, err error, failure redlock.Failure, nodes ...string) {
	t.Helper()
	var e *redlock.NoQuorumError
	if !errors.As(err, &e) {
		t.Errorf("got error %v, want a NoQuorumError", err)
		return
	}
	var got []string
	for _, node := range e.Failed {
		got = append(got, node.Node)
		if failure != "" && node.Failure != failure {
			t.Errorf("%v: want %s of every node", err, failure)
		}
	}
	if slices.Sort(got); !slices.Equal(got, nodes) {
		t.Errorf("%v: nodes %v failed, want %v", err, got, nodes)
	}
}

// operation is an operation of ballot.lua that was sent to a node.
type operation struct {
	node   int
	at     time.Duration
	letter string // "a", "e", "v", "r", "w", "f" or "p"
	key    string
	token  string
	ttl    string
	record string // of a, v, f and p: the counter and a fencing token
}

// operations returns the operations of a command; none if it is no call of ballot.lua.
func operations(command redlock.Command) (all []operation) {
	if !strings.EqualFold(command[0], "EVALSHA") || command[1] != ballotSHA {
		return nil
	}
	n, err := strconv.Atoi(command[2])
	if err != nil {
		panic(err)
	}
	keys, argv := command[4:3+n], command[3+n:]
	letters, records, args, ttl := argv[2], argv[3], argv[4:], ""
	for i, key := range keys {
		o := operation{key: key, letter: letters[i : i+1]}
		if !strings.Contains("wlco", o.letter) {
			o.token, args = args[0], args[1:]
		}
		if strings.Contains("hsy", o.letter) { // the new token, the kind, or the pattern
			args = args[1:]
		}
		if strings.Contains("ashevpqzxikmy", o.letter) {
			ttl, args = args[0], args[1:]
		}
		if o.letter == "q" { // the kind
			args = args[1:]
		}
		if strings.Contains("aevp", o.letter) {
			o.ttl = ttl
		}
		if strings.Contains("anshvfpq", o.letter) {
			o.record, records = records[:18], records[18:]
		}
		all = append(all, o)
	}
	return all
}

var ballotSHA = script.Scripts()[0].SHA

// journal has the operations of all nodes, in the order in which each node got them.
type journal struct {
	mu       sync.Mutex // guards what follows
	all      []operation
	commands []int // EVALSHAs by node
}

// record starts a journal of the operations that nodes execute from now on. It replaces the
// function that OnCommand set.
func (f *fleet) record() *journal {
	j := &journal{commands: make([]int, len(f.sims))}
	for i, sim := range f.sims {
		sim.OnCommand(func(c redlock.Command) { j.write(i, f.now(), operations(c)) })
	}
	return j
}

func (j *journal) write(node int, at time.Duration, all []operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(all) > 0 {
		j.commands[node]++
	}
	for _, o := range all {
		o.node, o.at = node, at
		j.all = append(j.all, o)
	}
}

// of returns the operations with this letter.
func (j *journal) of(letter string) []operation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.all), func(o operation) bool { return o.letter != letter })
}

// on returns the operations with this letter on one node.
func (j *journal) on(node int, letter string) []operation {
	return slices.DeleteFunc(j.of(letter), func(o operation) bool { return o.node != node })
}

// perNode returns how many commands with operations each node executed.
func (j *journal) perNode() []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.commands)
}

// acquisition is an Acquire in another goroutine, and its result.
type acquisition struct {
	lease *redlock.Lease
	err   error
	took  time.Duration
	done  chan struct{}
}

func (f *fleet) start(ctx context.Context, r redlock.Request) *acquisition {
	a := &acquisition{done: make(chan struct{})}
	begin := f.now()
	go func() {
		defer close(a.done)
		a.lease, a.err = f.q.Acquire(ctx, r)
		a.took = f.now() - begin
	}()
	return a
}

func (a *acquisition) wait() (*redlock.Lease, error) {
	<-a.done
	return a.lease, a.err
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }
