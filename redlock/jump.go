package redlock

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// jumps tell a node whose clock jumped from a host whose own clock stood still
// (a virtual machine that was paused): seen from there, all nodes jump at once.
// To take the admission of all nodes back for that would stop every other host
// as well. So a jump is judged when the other nodes have been looked at, too.
type jumps struct {
	mu   sync.Mutex // guards what follows
	seen []jumpSeen // by node
	told time.Duration
}

type jumpSeen struct {
	by time.Duration
	at time.Duration // BootTime; 0: none
}

const (
	// jumpSettle is how long other nodes are given to show a jump as well.
	jumpSettle = 300 * time.Millisecond
	// jumpMemory bounds how far apart jumps are seen that are one.
	jumpMemory = 5 * time.Second
)

// note remembers a node's jump and returns when it was first seen; fresh: now.
func (j *jumps) note(node int, by, now time.Duration) (first time.Duration, fresh bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.seen[node]
	if fresh = s.at == 0 || now-s.at > jumpMemory; fresh {
		*s = jumpSeen{by: by, at: now}
	}
	return s.at, fresh
}

// together is how many nodes have jumped by as much as this one.
func (j *jumps) together(node int, now time.Duration) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	alike := 0
	for _, s := range j.seen {
		apart := (s.by - j.seen[node].by).Abs()
		if s.at != 0 && now-s.at <= jumpMemory && apart <= drift(j.seen[node].by.Abs()) {
			alike++
		}
	}
	return alike
}

// tell tells whether nobody told of this jump yet.
func (j *jumps) tell(now time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := j.told == 0 || now-j.told > jumpMemory
	if fresh {
		j.told = now
	}
	return fresh
}

// judgeJump says what follows from a node's clock jump. While it is not known
// whether it is the node's, the node has no vote here. Where most nodes jumped
// alike, it is taken for this host's own clock: its leases are worth so much
// less, and the nodes have no vote here for max_ttl, in case it was they after
// all; other hosts judge for themselves.
func (l *lane) judgeJump(s *sighting, e epoch, by clockJump) ruling {
	if len(l.fleet.lanes) < 3 {
		return l.withdrawJumped(s, by) // two clocks cannot tell which of them it was
	}
	first, fresh := l.fleet.jumps.note(l.index, time.Duration(by), s.at)
	if fresh {
		l.fleet.lookAll(l) // once: the others may do the same
	}
	if s.at < first+jumpSettle {
		return ruling{standing: standing{state: NodeQuarantined, reason: by, until: first + jumpSettle}}
	}
	if l.fleet.jumps.together(l.index, s.at) < l.fleet.quorum {
		return l.withdrawJumped(s, by)
	}
	l.memory.watch = clockWatch{}
	l.memory.localUntil = s.at + l.fleet.longestTTL()
	if l.fleet.jumps.tell(s.at) {
		l.fleet.hostJumped(time.Duration(by))
	}
	return l.judgeAdmitted(s, e)
}

var errHostJumped = errors.New("the clocks of most nodes jumped against this host's, which was paused, or they were stepped")

func (l *lane) withdrawJumped(s *sighting, by clockJump) ruling {
	l.withdrawn(by, true)
	return l.mark(s, true)
}

// hostJumped tells of it, and takes the time that this host missed off its
// leases.
func (f *fleet) hostJumped(by time.Duration) {
	f.counts.clockJumps.Add(1)
	f.tell(Notice{Kind: HostClockJumped, Text: fmt.Sprintf("the clocks of most nodes moved by %v against this host's: it was paused (a virtual machine that was suspended or moved), "+
		"or all nodes' clocks were stepped; leases of this host count as so much older, and it takes no locks for %v", by.Round(time.Millisecond), f.longestTTL())})
	if by > 0 && f.aged != nil {
		f.aged(by)
	}
}

// lookAll has all other nodes looked at now.
func (f *fleet) lookAll(but *lane) {
	for _, l := range f.lanes {
		if l != but {
			l.lookNow.Store(true)
			l.stir()
		}
	}
}
