package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The faults below affect one node.

// atNode returns a fault of a random node that lasts up to longest milliseconds.
func atNode(longest time.Duration, begin func(f *faults, n *simNode, lasts time.Duration) (end func(), ok bool)) func(*faults) (activeFault, bool) {
	return func(f *faults) (activeFault, bool) {
		n := pick(f.random, f.w.nodes...)
		lasts := below(f.random, pick(f.random, longest, min(longest, 60))*time.Millisecond) // some end within an attempt
		end, ok := begin(f, n, lasts)
		return activeFault{"node " + n.Name(), []any{n}, lasts, end}, ok
	}
}

func nothing() {}

// slow makes some replies of the node come after the node timeout.
func slow(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.latency.set(between(f.random, 10*time.Millisecond, 120*time.Millisecond))
	return func() { n.latency.set(n.latency.usual) }, true
}

func loseRequests(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.DropRequests(1 + f.random.IntN(3))
	return func() { n.DropRequests(0) }, true
}

func loseReplies(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.DropReplies(1 + f.random.IntN(3))
	return func() { n.DropReplies(0) }, true
}

func cut(_ *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.Cut()
	return nothing, true
}

// cutLate breaks the connections. What was sent on them arrives after what is sent on new ones.
func cutLate(f *faults, n *simNode, lasts time.Duration) (end func(), ok bool) {
	wait := below(f.random, 40*time.Millisecond)
	n.latency.set(40 * time.Millisecond) // so that messages are in transit
	f.done.Go(func() {
		time.Sleep(wait)
		n.latency.set(n.latency.usual)
		n.CutLate(lasts)
		f.extendFault(n, lasts)
	})
	return nothing, true
}

func hang(_ *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.Hang()
	return n.Resume, true
}

func unreachable(_ *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.Down()
	return n.Up, true
}

// flushScripts makes the node lose its scripts several times. Another daemon loads them in between.
func flushScripts(f *faults, n *simNode, lasts time.Duration) (end func(), ok bool) {
	waits := make([]time.Duration, 1+f.random.IntN(8))
	for i := range waits {
		waits[i] = below(f.random, 4*time.Millisecond)
	}
	n.Do("SCRIPT", "FLUSH")
	f.done.Go(func() {
		for i, wait := range waits {
			time.Sleep(wait)
			if i%2 == 0 {
				n.LoadScripts()
			} else {
				n.Do("SCRIPT", "FLUSH")
			}
		}
		f.extendFault(n, heartbeat)
	})
	f.extendFault(n, lasts+heartbeat)
	return nothing, true
}

func refuseAll(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.Refuse(pick(f.random,
		redlock.ServerError("LOADING Redis is loading the dataset in memory"),
		redlock.ServerError("MISCONF Redis is configured to save RDB snapshots"),
		redlock.ServerError("READONLY You can't write against a read only replica.")))
	return func() {
		n.Refuse("")
		f.extendFault(n, heartbeat)
	}, true
}

func changeRate(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	n.SetClockRate(clockRate(f.random, 0.005))
	return nothing, true
}

func crashWithData(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if !(n.durable && f.isKnown(n)) && !f.mayLose(n) {
		return nil, false
	}
	return f.crash(n, true)
}

// isKnown reports whether each daemon has had time to see the epoch of a node that may vote. A
// daemon that has not seen it takes the data of a restarted durable node for foreign data.
func (f *faults) isKnown(n *simNode) bool {
	since := max(time.Duration(n.copies.since.Load()), slices.Max(f.healthySince(n)))
	return n.isAdmitted() && f.w.record.now()-since > 2*heartbeat
}

func crashWithoutData(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if !f.mayLose(n) {
		return nil, false
	}
	return f.crash(n, false)
}

func (f *faults) crash(n *simNode, keepData bool) (end func(), ok bool) {
	if !f.setCrashed(n, true) {
		return nil, false
	}
	n.Crash(keepData)
	if !keepData {
		f.noteLoss(n)
	}
	return func() {
		n.Restart()
		f.note(f.restarted, n)
		f.setCrashed(n, false)
	}, true
}

func (f *faults) isCrashed(n *simNode) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed[n]
}

// noteLoss records that the node lost its data now.
func (f *faults) noteLoss(n *simNode) {
	f.note(f.forgot, n)
	f.w.tracer.add(Step{What: LostData, Node: n.index})
}

func (f *faults) note(when map[*simNode]time.Duration, n *simNode) {
	now := f.w.record.now()
	f.mu.Lock()
	defer f.mu.Unlock()
	when[n] = now
}

// lossOf returns when the node last lost its data, or never.
func (f *faults) lossOf(n *simNode) time.Duration { return f.last(f.forgot, n) }

// restartOf returns when the node was last restarted, or never.
func (f *faults) restartOf(n *simNode) time.Duration { return f.last(f.restarted, n) }

func (f *faults) last(when map[*simNode]time.Duration, n *simNode) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, ok := when[n]; ok {
		return at
	}
	return never
}

// setCrashed records whether a node is down after a crash. It returns false if that was so already.
func (f *faults) setCrashed(n *simNode, crashed bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed := f.crashed[n] != crashed
	f.crashed[n] = crashed
	return changed
}

func flushAllKeys(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if !f.mayLose(n) {
		return nil, false
	}
	n.Flush()
	f.noteLoss(n)
	return nothing, true
}

// flushBeforeVouching flushes a node between a daemon's decision to admit it and the write of that
// decision.
func flushBeforeVouching(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if n.isAdmitted() || !n.ambush.CompareAndSwap(false, true) {
		return nil, false
	}
	n.OnCommand(func(c redlock.Command) { f.ambush(n, c) })
	return func() { n.OnCommand(nil); n.ambush.Store(false) }, true
}

// ambush sees every command before the node executes it. It flushes the node just before the
// command that admits it.
func (f *faults) ambush(n *simNode, c redlock.Command) {
	if len(c) > 5 && strings.HasPrefix(c[5], "admitted:") && n.Executes(c) && f.mayLose(n) {
		n.OnCommand(nil)
		n.Flush()
		f.noteLoss(n)
		f.w.record.event(Event{Actor: "node " + n.Name(), What: "flush", Note: "before its quarantine is ended"})
	}
}

// moveAddress makes the node's address lead to another Redis, or back to the earlier one. The other
// nodes must already store the epoch of the present Redis. Otherwise a daemon that has not seen
// this epoch believes that the earlier Redis ran all the time.
func moveAddress(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if !f.isKnownToOthers(n) || f.isCrashed(n) || !f.mayLose(n) {
		return nil, false
	}
	f.extendFault(n, oldTokensLast)
	n.Move()
	n.movedEpoch.Store(n.Do("HGET", redlocktest.NodeKey, "epoch").Str)
	n.releases.forget()
	f.noteLoss(n)
	return nothing, true
}

// isKnownToOthers reports whether a node may vote, and all other nodes store the word of its epoch.
func (f *faults) isKnownToOthers(n *simNode) bool {
	return n.isAdmitted() && !slices.ContainsFunc(f.w.nodes, func(other *simNode) bool {
		return other != n && !strings.Contains(other.Do("HGET", redlocktest.NodeKey, "words").Str, n.Name()+"="+n.word())
	})
}

// resync makes the node a replica for a while, with the data of another node or none.
func resync(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	from := pick(f.random, f.w.nodes...)
	if from == n || from.wasReplicaOf(n) || f.isCrashed(n) || !f.mayLose(n) {
		return nil, false
	}
	f.extendFault(n, copiesLast)
	f.foreign.Store(true)
	n.copied.Store(true)
	n.releases.forget()
	if oneIn(f.random, 3) {
		n.Demote(nil)
	} else {
		n.Demote(from.Sim)
	}
	f.noteLoss(n)
	return n.Promote, true
}

const (
	oldTokensLast = simulatedMaxTTL + simulatedMaxTTL/50 // until tokens that a node has from earlier expire
	copiesLast    = oldTokensLast + 2*maxClockError      // until tokens that a node has from another node expire
	heartbeat     = time.Second                          // after which a daemon repeats what a node refused
)

// extendFault counts a fault of a node while it has consequences.
func (f *faults) extendFault(n *simNode, lasts time.Duration) {
	f.faultCount([]any{n}, 1)
	time.AfterFunc(lasts, func() { f.faultCount([]any{n}, -1) })
}

// wasReplicaOf reports whether a node has the epoch of another one. If a node becomes a replica of
// its own former replica, only INFO shows that, and a daemon sees it only within a second. This is
// a known limit that the search need not find.
func (n *simNode) wasReplicaOf(other *simNode) bool {
	return strings.Contains(n.Do("HGET", redlocktest.NodeKey, "epoch").Str, other.RunID())
}

// restoreOlder restarts the node later with the data that it has now.
func restoreOlder(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	if n.durable {
		return nil, false
	}
	snapshot := n.Snapshot()
	return func() {
		if f.mayLose(n) && f.setCrashed(n, true) {
			f.extendFault(n, oldTokensLast)
			n.Restore(snapshot)
			n.releases.forget()
			f.noteLoss(n)
			f.setCrashed(n, false)
		}
	}, true
}

// stepClock steps the node's clock by more than most leases last. The sum of a node's steps stays
// within maxClockStep.
func stepClock(f *faults, n *simNode, _ time.Duration) (end func(), ok bool) {
	to := between(f.random, -maxClockStep/2, maxClockStep/2)
	f.mu.Lock()
	step := to - f.stepped[n]
	f.stepped[n] = to
	f.mu.Unlock()
	n.StepClock(step)
	return nothing, true
}

const maxClockStep = 3 * time.Second
