package redlock

// Pulse is how often the loops came round that leases depend on.
type Pulse struct {
	Keeper uint64 // extends leases, and says LOST
	Lanes  uint64 // of all nodes
}

// Beats tells whether since an earlier Pulse the keeper has come round, and the
// lane of one node at least: that of a node that is down or hangs comes round, too.
func (p Pulse) Beats(earlier Pulse) bool {
	return p.Keeper != earlier.Keeper && p.Lanes != earlier.Lanes
}

// Pulse has the keeper and all lanes come round, and returns how often they did
// until now. It does not wait for them: call it again later. A keeper comes round
// at once, and a lane within about ten node timeouts (a second at least); one that
// does not never will, and the process had better be started again: what is held
// stays on the nodes.
func (q *Quorum) Pulse() Pulse {
	p := Pulse{Keeper: q.keeper.rounds.Load()}
	q.keeper.stir()
	for _, l := range q.lanes {
		p.Lanes += l.Loops()
		l.Wake()
	}
	return p
}
