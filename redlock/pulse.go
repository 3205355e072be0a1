package redlock

// Pulse counts the rounds of the loops that leases depend on.
type Pulse struct {
	Keeper uint64 // the loop that extends leases and reports LOST
	Lanes  uint64 // the loops of all nodes' lanes together
}

// Beats reports whether, since an earlier Pulse, the keeper and at least one lane completed
// a round. The lane of a node that is down or hangs completes rounds, too.
func (p Pulse) Beats(earlier Pulse) bool {
	return p.Keeper != earlier.Keeper && p.Lanes != earlier.Lanes
}

// Pulse makes the keeper and all lanes run a round, and returns how many rounds they have
// completed. It does not wait for them: call it again later. The keeper completes a round
// at once, and a lane within about ten node timeouts (at least a second). A loop that takes
// longer hangs for good. Restart the process then: its locks stay on the nodes.
func (q *Quorum) Pulse() Pulse {
	p := Pulse{Keeper: q.keeper.rounds.Load()}
	q.keeper.stir()
	for _, l := range q.lanes {
		p.Lanes += l.Loops()
		l.Wake()
	}
	return p
}
