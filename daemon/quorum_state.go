package daemon

import (
	"sync"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// quorumState tracks, for the log, whether a quorum of nodes is ready.
type quorumState struct {
	mu           sync.Mutex // guards the fields below
	ready        map[string]bool
	hasQuorum    bool          // a quorum was ready at the last change of a node
	isLossLogged bool          // the log says that there is no quorum
	lossLoggedAt time.Duration // BootTime at which the log said so
}

// noteLossLogged records that the log says that there is no quorum.
func (q *quorumState) noteLossLogged(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.hasQuorum {
		q.isLossLogged, q.lossLoggedAt = true, now
	}
}

// update records the state of a node. lost: this change lost the quorum. back: there is a quorum
// again, and the log said that there was none; lasted is how long that was.
func (q *quorumState) update(s redlock.NodeStatus, quorum int, now time.Duration) (ready int, lost, back bool, lasted time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready == nil {
		q.ready = map[string]bool{}
	}
	q.ready[s.Name] = s.State == redlock.NodeReady
	for _, is := range q.ready {
		if is {
			ready++
		}
	}
	lost, back, lasted = q.changeLocked(ready >= quorum, now)
	return ready, lost, back, lasted
}

// changeLocked records whether there is a quorum.
func (q *quorumState) changeLocked(hasQuorum bool, now time.Duration) (lost, back bool, lasted time.Duration) {
	before := q.hasQuorum
	q.hasQuorum = hasQuorum
	switch {
	case before && !hasQuorum:
		q.isLossLogged, q.lossLoggedAt = true, now
		return true, false, 0
	case !before && hasQuorum && q.isLossLogged:
		q.isLossLogged = false
		return false, true, now - q.lossLoggedAt
	}
	return false, false, 0
}

// logQuorum logs the loss of the quorum and its return, once each.
func (d *daemon) logQuorum(s redlock.NodeStatus) {
	if d.isChanging {
		return // logChange does
	}
	nodes, quorum := len(d.Cfg.Quorum.Nodes), d.Cfg.Quorum.Needed()
	ready, lost, back, lasted := d.quorate.update(s, quorum, d.Clock())
	d.logQuorumNews(lost, back, lasted, "ready", ready, "quorum", quorum, "nodes", nodes)
}

func (d *daemon) logQuorumNews(lost, back bool, lasted time.Duration, facts ...any) {
	switch {
	case lost:
		d.Log.Error("quorum lost: no lock can be taken, and held locks may be lost, unless nodes come back", facts...)
	case back:
		d.Log.Info("there is a quorum: locks can be taken", append(facts, "after", lasted.Round(time.Millisecond))...)
	}
}
