package admission

import (
	"errors"
	"fmt"
	"time"
)

// withdrawal returns why an admitted epoch is no longer trusted; nil: it is trusted. If the
// reason is a clockJump, the fencing counters are still valid.
func (m *Member) withdrawal(s *Snapshot, e Epoch) error {
	if m.word != e.Word {
		m.clock, m.countersGone = clockWatch{}, false
	}
	restartedUnnoticed := m.word == e.Word && m.runID != e.RunID && s.At < m.durability.from
	if m.word != e.Word || m.runID != e.RunID { // a durable node keeps its word over a restart
		m.word, m.runID, m.replID, m.uptime = e.Word, e.RunID, s.Info.ReplID, s.Info.Uptime
		m.evicted = s.Info.Evicted
	}
	evicted := s.Info.Evicted - m.evicted
	m.evicted = s.Info.Evicted // smaller after CONFIG RESETSTAT
	jump, since := m.clock.note(s.Clock, m.fleet.LongestTTL())
	m.beforeJump = since
	uptime := m.uptime
	m.uptime = s.Info.Uptime
	switch {
	case restartedUnnoticed:
		return errors.New("it was restarted, and another host let it vote, because it did not see that the file lacks votes")
	case m.countersGone:
		return errors.New("its fencing counters are gone: somebody deleted them")
	case s.Info.ReplID != m.replID:
		return errors.New("its master_replid changed: it was a replica meanwhile, and may have the data of another Redis (or had a replica)")
	case evicted > 0:
		return fmt.Errorf("it evicted %d keys, and some may have been locks: CONFIG SET maxmemory-policy noeviction (on a managed server: in its parameter group), and more memory", evicted)
	case jump != 0:
		return clockJump(jump)
	case s.Info.Uptime < uptime-1:
		return fmt.Errorf("%w, from %d s to %d s", errUptime, uptime, s.Info.Uptime)
	}
	return nil
}

// errUptime means that the process is the same, and so are its counters, but its clock was set
// back.
var errUptime = errors.New("its uptime ran backwards")

// clockJump is how far a node's clock moved against this host's.
type clockJump time.Duration

func (j clockJump) Error() string {
	return fmt.Sprintf("its clock jumped by %v against this host's: keys may have expired early; slew clocks by less than 1 %%, do not step them (chronyd with maxslewrate 5000, ntpd -x)",
		time.Duration(j).Round(time.Millisecond))
}
