package main

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// A faultKind breaks something and mends it again. apply returns how much it changed:
// 0 is no fault. It blocks until everything is as before.
type faultKind struct {
	name   string
	weight int // how often it is chosen
	target target
	// losesVotes: a node may have forgotten locks. Such faults are kept apart, so that
	// nodes leave the quarantine now and then.
	losesVotes bool
	// alone: nothing else is broken meanwhile.
	alone bool
	apply func(*injector, int) (effect int, err error)
}

// A target is what a fault breaks: at any time a fault has it for itself.
type target int

const (
	aNode target = iota
	aDaemon
	aClient
)

var faultKinds = []faultKind{
	{name: "node killed, restarted empty or with its data", weight: 3, target: aNode, losesVotes: true, apply: (*injector).killNode},
	{name: "node flushed", weight: 2, target: aNode, losesVotes: true, apply: (*injector).flushNode},
	{name: "node stopped", weight: 14, target: aNode, apply: (*injector).stopNode},
	{name: "node's scripts flushed", weight: 8, target: aNode, apply: (*injector).flushScripts},
	{name: "node's clock stepped", weight: 1, target: aNode, losesVotes: true, alone: true, apply: (*injector).stepClock},
	{name: "network cut", weight: 8, target: aNode, apply: (*injector).cutBoth},
	{name: "network cut towards the node", weight: 8, target: aNode, apply: (*injector).cutRequests},
	{name: "network cut towards the daemon", weight: 8, target: aNode, apply: (*injector).cutReplies},
	{name: "daemon killed", weight: 6, target: aDaemon, apply: (*injector).killDaemon},
	{name: "daemon restarted", weight: 5, target: aDaemon, apply: (*injector).restartDaemon},
	{name: "daemon stopped", weight: 10, target: aDaemon, apply: (*injector).stopDaemon},
	{name: "disk of the daemon's state file full", weight: 4, target: aDaemon, apply: (*injector).fillDisk},
	{name: "client killed", weight: 12, target: aClient, apply: (*injector).killClient},
	{name: "client stopped", weight: 11, target: aClient, apply: (*injector).stopClient},
}

// possible says whether the fault can be made in this world.
func (k *faultKind) possible(w *world) bool {
	switch {
	case strings.HasPrefix(k.name, "network cut"):
		return w.network != nil && len(w.daemons) > 0
	case strings.HasPrefix(k.name, "disk"):
		return len(w.daemons) > 0 && w.daemons[0].mounted
	case k.target == aDaemon:
		return len(w.daemons) > 0
	}
	return true
}

// An injector makes one fault. Each has a random source of its own, so that the seed
// decides what is broken, and for how long, whatever runs beside.
type injector struct {
	world  *world
	random *rand.Rand
	done   <-chan struct{} // closed at the end of the run: faults are mended early
}

// last waits for a random time, at most so long, and at least a tenth of it.
func (f *injector) last(most time.Duration) {
	f.wait(most/10 + time.Duration(f.random.Int64N(int64(most-most/10))))
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

func (f *injector) killNode(number int) (int, error) {
	n := f.world.nodes[number]
	n.Kill()
	f.last(time.Second)
	return 1, n.Restart()
}

// flushNode counts the keys that were lost.
func (f *injector) flushNode(number int) (int, error) {
	db := f.redis(number)
	defer db.Close()
	keys, err := db.DBSize(context.Background()).Result()
	if err != nil {
		return 0, err
	}
	return int(keys), db.FlushAll(context.Background()).Err()
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

// stepClock steps the wall clock of a node by up to 90 s, and counts only if TIME shows it.
// It stays so until the next step. Meanwhile nothing else is broken: a lock that a quorum
// lets go because of clocks is not covered by any promise.
func (f *injector) stepClock(number int) (int, error) {
	step := time.Duration(f.random.IntN(90_000)+500) * time.Millisecond
	if f.random.IntN(2) == 0 {
		step = -step
	}
	db := f.redis(number)
	defer db.Close()
	if err := f.world.nodes[number].SetClock(step); err != nil {
		return 0, err
	}
	shown, err := db.Time(context.Background()).Result()
	if err != nil {
		return 0, err
	}
	f.wait(maxTTL + 2*time.Second) // until it may vote again
	if ahead := time.Until(shown); ahead.Abs() < step.Abs()/2 {
		return 0, nil
	}
	return 1, nil
}

func (f *injector) cutBoth(number int) (int, error)     { return f.cut(number, requests|replies) }
func (f *injector) cutRequests(number int) (int, error) { return f.cut(number, requests) }
func (f *injector) cutReplies(number int) (int, error)  { return f.cut(number, replies) }

// cut separates one daemon from a node, and counts the packets that were dropped.
func (f *injector) cut(number int, d direction) (int, error) {
	daemon := f.random.IntN(len(f.world.daemons))
	heal, err := f.world.network.cut(daemon, f.world.nodes[number].port, d)
	if err != nil {
		return 0, err
	}
	f.last(2 * time.Second)
	return heal()
}

// --- daemons

func (f *injector) killDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	d.kill()
	f.last(500 * time.Millisecond)
	return 1, d.start()
}

func (f *injector) restartDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	d.terminate()
	return 1, d.start()
}

func (f *injector) stopDaemon(number int) (int, error) {
	d := f.world.daemons[number]
	if err := d.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	f.last(3 * time.Second)
	return 1, d.process.Process.Signal(syscall.SIGCONT)
}

// fillDisk leaves no byte for the state file for a while.
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
			block = block[:len(block)/2] // then the rest of a block
		}
	}
	f.last(2 * time.Second)
	return written, nil
}

// --- clients

func (f *injector) killClient(number int) (int, error) {
	c := f.world.clients[number]
	c.kill()
	return 1, c.start()
}

func (f *injector) stopClient(number int) (int, error) {
	c := f.world.clients[number]
	if err := c.process.Process.Signal(syscall.SIGSTOP); err != nil {
		return 0, err
	}
	f.last(4 * time.Second)
	return 1, c.process.Process.Signal(syscall.SIGCONT)
}
