package redlock

import (
	"errors"
	"fmt"
	"time"
)

// suspicion says why an epoch cannot be believed any more. Where it is a
// clockJump, the fencing counters can.
func (m *memory) suspicion(s *sighting, e epoch, window time.Duration) error {
	if m.word != e.word {
		m.watch, m.countersGone = clockWatch{}, false
	}
	believed := m.word == e.word && m.runID != e.runID && s.at < m.durableFrom
	if m.word != e.word || m.runID != e.runID { // a durable node keeps its word over a restart
		m.word, m.runID, m.replID, m.uptime = e.word, e.runID, s.info.replID, s.info.uptime
		m.evicted = s.info.evicted
	}
	evicted := s.info.evicted - m.evicted
	m.evicted = s.info.evicted // fewer after CONFIG RESETSTAT
	jump, since := m.watch.note(s.clock, window)
	m.jumpSince = since
	uptime := m.uptime
	m.uptime = s.info.uptime
	switch {
	case believed:
		return errors.New("it was restarted, and another host, which did not see that it had not written every vote to its file, let it vote")
	case m.countersGone:
		return errors.New("its fencing counters are gone: somebody deleted them")
	case s.info.replID != m.replID:
		return errors.New("its master_replid changed: it was a replica in between, and may hold another's data (or had one attached)")
	case evicted > 0:
		return fmt.Errorf("it evicted %d keys, and some may have been locks: CONFIG SET maxmemory-policy noeviction, and more memory", evicted)
	case jump != 0:
		return clockJump(jump)
	case s.info.uptime < uptime-1:
		return fmt.Errorf("%w, from %d s to %d s", errUptime, uptime, s.info.uptime)
	}
	return nil
}

// errUptime: the process is the same, so its counters are, but its clock was set
// back.
var errUptime = errors.New("its uptime ran backwards")

// clockJump is by how much a node's clock moved against ours.
type clockJump time.Duration

func (j clockJump) Error() string {
	return fmt.Sprintf("its clock jumped by %v against this host's: keys may have expired early; have clocks slewed by less than 1 %%, not stepped (chronyd with maxslewrate 5000, ntpd -x)",
		time.Duration(j).Round(time.Millisecond))
}

// withdrawn tells of a node whose admission is taken back.
func (l *lane) withdrawn(why error, kept bool) {
	kind := Withdrawn
	if kept {
		kind = ClockJumped
		l.fleet.counts.clockJumps.Add(1)
	}
	l.fleet.counts.withdrawals.Add(1)
	l.fleet.tell(Notice{Kind: kind, Node: l.node.Name, Text: why.Error()})
}
