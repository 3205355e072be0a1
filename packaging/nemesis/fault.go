package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A faultKind breaks something and repairs it. apply returns how much it changed; 0 means that
// nothing was broken. It blocks until everything is repaired.
type faultKind struct {
	name   string
	weight int // relative frequency
	target target
	// losesVotes: a node may have lost locks. These faults are kept apart, so that nodes leave the
	// quarantine now and then.
	losesVotes bool
	slow       bool // it needs a whole change of the nodes
	apply      func(*injector, int) (effect int, err error)
}

// A target is the thing that a fault breaks. At most one fault at a time has it.
type target int

const (
	aNode target = iota
	aDaemon
	aClient
	allDaemons
	theCommitter // of a change of the nodes
	theOperator
	lateHost // another daemon beside the one with that number
)

var faultKinds = []faultKind{
	{name: "node killed, restarted empty or with its data", weight: 12, target: aNode, losesVotes: true, apply: (*injector).killNode},
	{name: "node loses power", weight: 12, target: aNode, apply: (*injector).losePower},
	{name: "node's certificate expired", weight: 12, target: aNode, apply: (*injector).expireCertificate},
	{name: "node flushed", weight: 12, target: aNode, losesVotes: true, apply: (*injector).flushNode},
	{name: "node's clock stepped", weight: 3, target: aNode, losesVotes: true, apply: (*injector).stepClock},
	{name: "node stopped", weight: 40, target: aNode, apply: (*injector).stopNode},
	{name: "node's scripts flushed", weight: 30, target: aNode, apply: (*injector).flushScripts},
	{name: "network cut", weight: 35, target: aNode, apply: (*injector).cutBoth},
	{name: "network cut towards the node", weight: 35, target: aNode, apply: (*injector).cutRequests},
	{name: "network cut towards the daemon", weight: 35, target: aNode, apply: (*injector).cutReplies},
	{name: "daemon killed", weight: 15, target: aDaemon, apply: (*injector).killDaemon},
	{name: "daemon restarted", weight: 15, target: aDaemon, apply: (*injector).restartDaemon},
	{name: "daemon stopped", weight: 20, target: aDaemon, apply: (*injector).stopDaemon},
	{name: "disk of the daemon's state file full", weight: 10, target: aDaemon, apply: (*injector).fillDisk},
	{name: "lock taken by FORCE", weight: 15, target: aDaemon, apply: (*injector).forceLock},
	{name: "another daemon with a wrong list of nodes", weight: 5, target: aDaemon, apply: (*injector).startStranger},
	{name: "set of nodes changed, back, and again", weight: 10, target: allDaemons, apply: (*injector).changeNodes},
	{name: "committer killed in a change of the nodes", weight: 10, target: theCommitter, slow: true, apply: (*injector).killCommitter},
	{name: "late host in a change of the nodes", weight: 10, target: lateHost, slow: true, apply: (*injector).wakeLateHost},
	{name: "wrong steps of a change by the operator", weight: 10, target: theOperator, apply: (*injector).takeWrongSteps},
	{name: "client killed", weight: 60, target: aClient, apply: (*injector).killClient},
	{name: "client stopped", weight: 60, target: aClient, apply: (*injector).stopClient},
}

// possible reports whether the fault can be made in this world.
func (k *faultKind) possible(w *world) bool {
	switch {
	case strings.HasPrefix(k.name, "network cut"):
		return w.network != nil && len(w.daemons) > 0
	case strings.HasPrefix(k.name, "disk"):
		return len(w.daemons) > 0 && w.daemons[0].mounted
	case strings.HasPrefix(k.name, "another daemon"):
		return len(w.daemons) > 0 && len(w.nodes) > 2 && !w.options.admit
	case k.target >= allDaemons:
		return len(w.daemons) > 0 && len(w.nodes) > leavingNodes && w.options.quarantines() && w.options.other == "" && w.options.rivals == 0
	case k.name == "node's certificate expired":
		return w.options.tls
	case k.name == "node loses power":
		return w.options.durable
	case k.target == aDaemon:
		return len(w.daemons) > 0
	}
	return true
}

// An injector makes one fault. Each has its own random source, so that the seed decides what is
// broken and for how long, independently of concurrent faults.
type injector struct {
	world  *world
	random *rand.Rand
	done   <-chan struct{}               // closed at the end of the run, which ends faults early
	also   func(name string, effect int) // counts something as a fault of its own
}

// shortest is the shortest duration of a fault: a call to a node times out meanwhile.
const shortest = nodeTimeout * 3 / 2

// last waits for a random time: mostly below 0.4 s, in one case of eight up to most.
func (f *injector) last(most time.Duration) {
	if f.random.IntN(8) > 0 {
		most = min(most, 400*time.Millisecond)
	}
	f.wait(shortest + time.Duration(f.random.Int64N(int64(most-shortest))))
}

func (f *injector) wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-f.done:
	}
}

// --- nodes

func (f *injector) redis(number int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: f.world.nodes[number].Addr(), MaxRetries: -1})
}

// keys returns how many keys a node has.
func (f *injector) keys(number int) (int, error) {
	db := f.redis(number)
	defer db.Close()
	n, err := db.DBSize(context.Background()).Result()
	return int(n), err
}

// killNode kills a node, and counts the keys that it had.
func (f *injector) killNode(number int) (int, error) {
	n := f.world.nodes[number]
	keys, err := f.keys(number)
	if err != nil {
		return 0, err
	}
	n.Kill()
	f.last(time.Second)
	return keys, n.Restart()
}

// losePower takes from a node all that it has not synced, and counts the keys that it had.
func (f *injector) losePower(number int) (int, error) {
	n := f.world.nodes[number]
	keys, err := f.keys(number)
	if err != nil {
		return 0, err
	}
	if _, err := n.LosePower(); err != nil {
		return 0, err
	}
	f.last(time.Second)
	return keys, n.Restart()
}

// flushNode flushes a node, and counts the lost keys.
func (f *injector) flushNode(number int) (int, error) {
	keys, err := f.keys(number)
	if err != nil {
		return 0, err
	}
	db := f.redis(number)
	defer db.Close()
	return keys, db.FlushAll(context.Background()).Err()
}

func (f *injector) flushScripts(number int) (int, error) {
	db := f.redis(number)
	defer db.Close()
	info, err := db.Info(context.Background(), "memory").Result()
	if err != nil {
		return 0, err
	}
	if strings.Contains(info, "number_of_cached_scripts:0\r") {
		return 0, nil
	}
	return 1, db.ScriptFlush(context.Background()).Err()
}

func (f *injector) stopNode(number int) (int, error) {
	n := f.world.nodes[number]
	if err := n.Stop(); err != nil {
		return 0, err
	}
	f.last(3 * time.Second)
	return 1, n.Cont()
}

// stepClock steps the wall clock of a node by up to 90 s, and counts only if TIME shows it. The
// clock stays so until the next step. A step forward makes the node's keys expire early, which no
// promise covers: locks that are held then are excused.
func (f *injector) stepClock(number int) (int, error) {
	n := f.world.nodes[number]
	step := time.Duration(f.random.IntN(90_000)+500) * time.Millisecond
	if f.random.IntN(2) == 0 {
		step = -step
	}
	db := f.redis(number)
	defer db.Close()
	from := now()
	if err := n.SetClock(step); err != nil {
		return 0, err
	}
	shown, err := db.Time(context.Background()).Result()
	if err != nil {
		return 0, err
	}
	off := time.Until(shown) - step
	if step > n.ahead {
		f.world.excuse(excuse{From: from, To: now() + passWindow})
	}
	n.ahead = step
	f.wait(maxTTL + time.Second) // until the node may vote again
	if off.Abs() > 400*time.Millisecond {
		return 0, nil
	}
	return 1, nil
}

// passWindow is longer than a daemon may pass a lock on among its clients without a node that
// confirms it.
const passWindow = 100 * time.Millisecond

func (f *injector) cutBoth(number int) (int, error)     { return f.cut(number, requests|replies) }
func (f *injector) cutRequests(number int) (int, error) { return f.cut(number, requests) }
func (f *injector) cutReplies(number int) (int, error)  { return f.cut(number, replies) }

// cut separates one daemon from a node, and counts the dropped packets.
func (f *injector) cut(number int, d direction) (int, error) {
	daemon := f.random.IntN(len(f.world.daemons))
	heal, err := f.world.network.cut(daemon, f.world.nodes[number].daemonPort(), d)
	if err != nil {
		return 0, err
	}
	f.last(2 * time.Second)
	return heal()
}

// --- daemons

// killDaemon counts the locks that the daemon's clients held, as do the next two functions.
func (f *injector) killDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	d.restarts.Lock()
	defer d.restarts.Unlock()
	held := f.world.heldThrough(d)
	d.kill()
	f.last(500 * time.Millisecond)
	return held, d.start()
}

func (f *injector) restartDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	d.restarts.Lock()
	defer d.restarts.Unlock()
	held := f.world.heldThrough(d)
	d.terminate()
	return held, d.start()
}

func (f *injector) stopDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	d.restarts.Lock()
	defer d.restarts.Unlock()
	held := f.world.heldThrough(d)
	if err := d.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	f.last(3 * time.Second)
	return held, d.process.Process.Signal(syscall.SIGCONT)
}

// lateForce is how long calls of an unconfirmed FORCE may be in progress.
const lateForce = 10 * time.Second

// forceLock revokes a lock that a client holds, and counts its holders. They may go on until they
// are told, so they are excused.
func (f *injector) forceLock(number int) (int, error) {
	name := f.world.heldName()
	if name == "" {
		return 0, nil
	}
	from := now()
	answer, err := f.world.daemons[number].ask("FORCE " + name)
	done, late := strings.HasPrefix(answer, "OK "), passWindow
	if err != nil || !done {
		late = lateForce
	}
	f.world.excuse(excuse{Name: name, From: from, To: now() + late})
	if !done {
		return 0, nil // for example without a quorum
	}
	holders, err := strconv.Atoi(field(answer, "n"))
	return holders, err
}

// startStranger starts a daemon on the host whose config lacks two nodes. Its quorums need not meet
// those of the others, so it must get no lock, not even one that nobody wants. It counts the refusals.
func (f *injector) startStranger(number int) (int, error) {
	w := f.world
	d, end, err := w.startBeside("stranger", number, w.nodes[:len(w.nodes)-2])
	if err != nil {
		return 0, err
	}
	defer end()
	refused := 0
	for range 10 {
		f.wait(shortest)
		const name = "stranger"
		answer, err := d.ask("TRY " + name)
		switch {
		case err != nil:
			return refused, err
		case strings.HasPrefix(answer, "OK "):
			w.fail(violation{name: name, what: "a daemon with a wrong list of nodes got it: " + answer})
		default:
			refused++
		}
	}
	return refused, nil
}

// fillDisk fills the file system of the state file for a while.
func (f *injector) fillDisk(number int) (int, error) {
	d := f.world.daemons[number]
	path := filepath.Join(d.dir, "fill")
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer file.Close()
	written, block := 0, make([]byte, 1<<20)
	for len(block) > 0 {
		n, err := file.Write(block)
		written += n
		if err != nil {
			block = block[:len(block)/2] // then the rest of the last block
		}
	}
	f.last(2 * time.Second)
	return written, nil
}

// --- clients

// killClient counts the locks that the process held, as does stopClient.
func (f *injector) killClient(number int) (int, error) {
	c := f.world.clients[number]
	held := c.kill()
	return held, c.start()
}

func (f *injector) stopClient(number int) (int, error) {
	c := f.world.clients[number]
	held := f.world.heldBy(c)
	if err := c.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	f.last(4 * time.Second)
	return held, c.process.Process.Signal(syscall.SIGCONT)
}
