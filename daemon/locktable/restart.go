package locktable

// Restart is what an earlier daemon left. It decides what becomes of the leases and connections of
// that daemon: for each lease that Continues, the caller calls Claim, has redlock adopt the lease, and
// then calls Table.Restore, which applies one event. When all leases are restored, the caller calls
// EndedConns, performs what is due, and calls Recorded.Ending for each lease.
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
	Was           Life   // without its Memory; Acquiring: an attempt

	NeedsConn bool // it ends with its connection (hold=conn)
	OfProcess bool // hold=pid
	Lingers   bool // it has linger=
	MinLeft   bool // min= has not passed

	// Claim sets these.
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
		if l.Was.State.Continues() {
			tokens[l.Token], tokens[l.Former] = true, true
		}
	}
	for i, l := range all {
		switch {
		case l.Was.State.Continues():
		case !r.Complete, tokens[l.Token]:
			fates[i] = WasPassed
		default:
			fates[i] = Abandoned
		}
	}
	return fates
}

// Claim decides who holds a lease that continues, and returns whether it is extended if its LOCK asked
// for that (extended). With hold=pid, process is nil if the process has ended (isGone), or may have
// ended.
func (r *Restart) Claim(l *Lease, by *Recorded, process *Client, isGone, extended bool) bool {
	l.Life = by.Was
	conn, isKnown := r.Conns[by.Conn]
	holder, reporter := &Client{}, conn.Client
	switch {
	case by.Was.State == Kept:
		by.IsFree = true
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

// Restore registers a lease that redlock has adopted, and counts it for its user, whatever the limit. It
// returns what becomes due when all leases are restored. The caller must forget replaced, as after Name.
// open is false if the process has ended meanwhile. A lost lease is in no queue; any other one must be
// restored in the Queue.
func (t *Table) Restore(l *Lease, by *Recorded) (due Due, replaced []*Lease, open bool) {
	t.Register(l)
	if replaced, open = t.Name(l); by.Was.State == Lost {
		l.furthers = nil
	} else {
		t.chargeLease(l)
	}
	if by.IsUnclaimed {
		t.addUnclaimed(l)
	}
	return t.Apply(l, Restarted), replaced, open
}

// Ending returns what becomes of a restored lease whose client is gone.
func (by *Recorded) Ending(l *Lease) Ending {
	switch {
	case by.Was.State != Held:
	case by.IsFree:
		return ClientEnd{Process: true, Lingers: by.Lingers}.Ending()
	case !l.HasClient() && by.MinLeft:
		return ReleaseUnclaimed
	}
	return LeaveAlone
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
