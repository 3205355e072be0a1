package locktable

// Restart is what an earlier daemon left. It decides what becomes of the leases and connections of
// that daemon: for each lease that Continues, the caller calls Claim, has redlock adopt the lease, and
// then calls Table.Restore. When all leases are restored, it calls EndedConns, and Table.Settle for each
// of them.
type Restart struct {
	Complete bool // no record is missing
	Marked   bool // the service manager kept the connections that it had: if one is missing, its client ended it
	Conns    map[uint64]RecordedConn
}

// RecordedConn is a connection that an earlier daemon recorded.
type RecordedConn struct {
	Stored bool    // the service manager had it
	Client *Client // nil: it does not continue
}

// Recorded is what an earlier daemon recorded of a lease, or of an attempt that may have become one.
type Recorded struct {
	Token, Former string // on the nodes; Former: the token that some of them may have instead, or ""
	Conn          uint64 // the connection that has the lease, or reports its loss; 0: none

	Granted  bool
	Released bool // its release has begun, and it was not lost
	Lost     bool
	Reported bool // the client was told of the loss
	Kept     bool // nobody holds it, and it stays taken until min= has passed

	NeedsConn bool // it ends with its connection (hold=conn)
	OfProcess bool // hold=pid
	Lingers   bool // it has linger=
	MinLeft   bool // min= has not passed

	// Claim sets these, and Restore may set IsFree.
	IsFree      bool // nobody holds it
	IsUnclaimed bool // its client may be alive, and has no connection: it can resume the lease
}

// Fate is what becomes of a recorded lease.
type Fate uint8

const (
	Continues Fate = iota
	WasPassed      // forget it and release nothing: a granted lease has its token now, or may have it if records are missing
	Abandoned      // release what its attempt may have taken, or its release may have left
)

// Fates returns what becomes of each lease. The client of an attempt got no answer, even if the attempt
// was granted and lost.
//
// If records are missing, an attempt may have been granted, and a released lease may have been passed on.
// So the lock stays until its deadline. No record stays: a later daemon, for which no record is missing,
// would release the lock of a client that may still hold it.
func (r *Restart) Fates(all []*Recorded) []Fate {
	fates, tokens := make([]Fate, len(all)), map[string]bool{}
	for _, l := range all {
		if l.continues() {
			tokens[l.Token], tokens[l.Former] = true, true
		}
	}
	for i, l := range all {
		switch {
		case l.continues():
		case !r.Complete, tokens[l.Token]:
			fates[i] = WasPassed
		default:
			fates[i] = Abandoned
		}
	}
	return fates
}

func (l *Recorded) continues() bool { return l.Granted && !l.Released }

// Claim decides who holds a lease that continues, and returns whether it is extended if its LOCK asked
// for that (extended). With hold=pid, process is nil if the process has ended (isGone), or may have
// ended.
func (r *Restart) Claim(l *Lease, by *Recorded, process *Client, isGone, extended bool) bool {
	l.Life = Life{State: Held, Knows: KnowsGrant}
	conn, isKnown := r.Conns[by.Conn]
	holder, reporter := &Client{}, conn.Client
	switch {
	case by.Kept:
		by.IsFree = true
		if !by.Lost {
			l.Life.State = Kept
		}
	case by.OfProcess:
		if by.IsFree = isGone; process != nil {
			holder = process
		} else if !isGone {
			extended = false
		}
	case by.NeedsConn && conn.Client == nil:
		by.IsFree = r.Complete && (!isKnown || conn.Stored && r.Marked)
		extended = by.IsFree && by.Lingers // otherwise RESUME starts the extensions
	}
	by.IsUnclaimed = by.NeedsConn && conn.Client == nil && !by.IsFree
	if (by.IsFree || by.IsUnclaimed) && by.MinLeft {
		extended = true // whether or not it is resumed
	}
	switch {
	case by.IsFree:
		reporter = nil
	case reporter != nil && !holder.IsProcess:
		holder = reporter
	}
	l.SetHolder(holder, reporter)
	return extended
}

// Restore registers a lease that redlock has adopted, and counts it for its user, whatever the limit. The
// caller must forget replaced, as after Name. A lost lease is in no queue; any other one must be restored
// in the Queue.
func (t *Table) Restore(l *Lease, by *Recorded) (replaced []*Lease) {
	t.Register(l)
	replaced, open := t.Name(l)
	by.IsFree = by.IsFree || !open // its process has just ended
	if by.Lost {
		l.furthers = nil
		if l.Life = (Life{State: Gone, Knows: KnowsLoss}); !by.Reported {
			l.Life.Knows = MissesLoss
		}
	} else {
		t.chargeLease(l)
	}
	if by.IsUnclaimed {
		t.addUnclaimed(l)
	}
	return replaced
}

// Settle returns what became due for a lease while no daemon ran, and what becomes of it if its client
// is gone.
func (t *Table) Settle(l *Lease, by *Recorded) (Due, Ending) {
	switch {
	case l.Life.Knows == MissesLoss:
		return t.Apply(l, GrantReported), LeaveAlone
	case by.Lost && (by.IsFree || !l.HasClient()):
		return t.Apply(l, Dropped), LeaveAlone
	case by.Lost:
		return t.Apply(l, LossRemembered), LeaveAlone
	case by.Kept:
		return Due{Effects: DelayRelease}, LeaveAlone
	case by.IsFree:
		return Due{}, ClientEnd{Process: true, Lingers: by.Lingers}.Ending()
	case !l.HasClient() && by.MinLeft:
		return Due{}, ReleaseUnclaimed
	}
	return Due{}, LeaveAlone
}

// EndedConns returns the connections that have ended, and those of the rest that do not continue and
// must be recorded as not stored: a later daemon would assume that their clients had ended them, but
// they can resume leases.
func (r *Restart) EndedConns(continued []*Recorded) (ended, unstored []uint64) {
	resumable := map[uint64]bool{}
	for _, l := range continued {
		resumable[l.Conn] = resumable[l.Conn] || !l.IsFree
	}
	for number, conn := range r.Conns {
		switch {
		case conn.Client != nil:
		case !resumable[number]:
			ended = append(ended, number)
		case conn.Stored:
			unstored = append(unstored, number)
		}
	}
	return ended, unstored
}
