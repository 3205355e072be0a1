package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// judgePending: every daemon measures the quarantine from when it first saw the
// marker, by its own clock; never from the node's uptime, which says nothing of
// when it was flushed.
func (l *lane) judgePending(ctx context.Context, s *sighting, e epoch) ruling {
	m := &l.memory
	if m.marker.word != e.word || m.marker.runID != e.runID {
		m.markedAt, m.markedIn = s.at, s.heard
	}
	m.marker = e
	l.fleet.noteMaxTTL(e.maxTTL)
	if longest := l.fleet.longestTTL(); e.maxTTL < longest {
		e.maxTTL = longest
		return ruling{write: &e}
	}
	l.noteLoss(!e.kept, m.markedIn, s.asked)
	l.fleet.noteTotalLoss()
	waiting := ruling{standing: standing{state: NodeQuarantined, epoch: s.epoch, reason: m.whyPending(s.at, e), until: l.quarantineEnd(s)}}
	if s.at < waiting.until {
		l.rules.meanwhile(l, ctx)
		return waiting
	}
	return l.vouch(ctx, s, waiting, e)
}

// quarantineEnd is max_ttl after the marker was first seen: by then every lease is over
// that the node may have voted for and forgotten. And unaware longer after the other nodes
// know of it: so is what other hosts hold with votes of another Redis under its name; but
// where no node votes that they could hold it with.
func (l *lane) quarantineEnd(s *sighting) time.Duration {
	m := &l.memory
	if l.fleet.options.NoQuarantine || m.early {
		return m.markedAt
	}
	alone := m.markedAt // since when no other has voted
	if told := l.fleet.words.told(l.index); told != 0 && !m.marker.kept && !l.fleet.isAnew(l) {
		alone = max(alone, told+unaware)
	}
	started := s.at - time.Duration(s.info.uptime)*time.Second
	return l.rules.quarantineEnd(alone, l.fleet.longestTTL(), started)
}

// unaware is how old may be what a host knows of the other nodes while it counts votes for
// all of max_ttl: each is looked at once a heartbeat.
const unaware = heartbeat + heartbeat/2

func (f *fleet) aware(now time.Duration) awareness {
	a, outdone := f.words.aware(now)
	f.lookAt(outdone)
	return a
}

// latest is a deadline that no lease passes that nodes (bits) have granted or extended,
// of which so much was known when they were asked. By then nobody else has a vote of
// another Redis under the name of one of them: that waits for max_ttl and unaware from when
// enough others say that there is one. (Where nodes are looked at once a heartbeat it is
// beyond all other deadlines. Not so where one that grants was hanging, or this process or
// host was stopped.)
func (f *fleet) latest(a awareness, nodes uint64) time.Duration {
	since := a.since
	if nodes&a.silent != 0 {
		since = min(since, a.before)
	}
	if since == never {
		return never
	}
	longest := f.options.MaxTTL + unaware
	return since + longest - drift(longest)
}

func (m *memory) whyPending(now time.Duration, e epoch) error {
	switch {
	case m.outdoneAt != 0 && now-m.outdoneAt < e.maxTTL:
		return errOutdone
	case e.kept:
		return errors.New("its clock jumped, so it may have let locks go that are still held")
	}
	return errors.New("it is new, or was restarted, flushed or resynchronised, so it may have forgotten locks that are still held")
}

// vouch ends a quarantine that is over, with counters that no fencing token
// given before exceeds.
func (l *lane) vouch(ctx context.Context, s *sighting, waiting ruling, e epoch) ruling {
	e.pending, e.digest = false, l.fleet.digest
	if e.kept {
		return ruling{write: &e}
	}
	if l.fleet.options.NoQuarantine {
		return ruling{write: &e, records: recordsOf(new([maxCounters]uint64))}
	}
	counters, sources := l.rules.copyCounters(l, ctx)
	needed, early, total := l.fleet.copySources(), l.memory.early, l.lossSpan().total
	switch {
	case sources < needed && !early && !total:
		waiting.reason = errNoSources(needed, sources)
		return waiting
	case !early && !l.isKnown(s) && (!total || l.fleet.words.isAside(l.index)):
		waiting.reason = errUnknown
		return waiting
	case sources < needed:
		l.fleet.announceLoss()
	}
	return ruling{write: &e, records: recordsOf(counters)}
}

// isKnown tells whether the other nodes have said long enough of which quarantine this is
// the end: whoever reaches another Redis under the node's name has begun a later one there
// by now, and that would be known here.
func (l *lane) isKnown(s *sighting) bool {
	return l.fleet.words.told(l.index) != 0 && s.at >= l.quarantineEnd(s)
}

var errUnknown = errors.New("its quarantine is over, but too few other nodes know of it, or not long enough: others could reach another Redis under its name")

func (l *lane) copyCounters(ctx context.Context) (counters *[maxCounters]uint64, sources int) {
	return l.fleet.copyCounters(ctx, l.clock)
}

func errNoSources(needed, sources int) error {
	return fmt.Errorf("its quarantine is over, but its fencing counters are to be copied from %d other nodes that may vote, and there are %d: bring those up, or ADMIT it where fencing tokens may begin anew", needed, sources)
}

// lossSpan is when the node was seen without counters, where it is so still.
func (l *lane) lossSpan() lossSpan {
	l.mu.Lock()
	defer l.mu.Unlock()
	span := l.loss
	span.lost = span.lost && l.isConnected()
	return span
}

// lastLost is the last turn in which it was seen without counters; 0: it never was.
func (l *lane) lastLost() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lostAt
}

// noteLoss: its marker was seen from turn to turn.
func (l *lane) noteLoss(lost bool, first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := l.loss.total && l.loss.first == first
	l.loss = lossSpan{lost: lost, first: first, last: last, total: total}
	if lost {
		l.lostAt = last
	}
}

// noteTotalLoss: it was so together with a quorum, in the span that began then.
func (l *lane) noteTotalLoss(first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loss.total = l.loss.total || l.loss.first == first
}
