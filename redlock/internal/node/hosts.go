package node

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/admission"
	"github.com/redlockd/redlockd/redlock/internal/redis"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// hosts is what a node has about the hosts that use it, or why it could not be read.
type hosts struct {
	reports []admission.HostReport
	err     error
}

// appendReport tells a node that is being changed which list this host has.
func (l *Lane) appendReport() {
	report := ""
	if l.session.offset != 0 { // otherwise the node's time is not known yet
		report = l.member.HostReport(l.clock() + l.session.offset)
	}
	if l.lookReports = report != ""; l.lookReports {
		l.appendCommand("HSET", admission.HostsKey, l.host, report)
		l.appendCommand("PEXPIRE", admission.HostsKey, strconv.FormatInt(admission.HostsLast.Milliseconds(), 10))
	}
}

// Hosts asks the node, also one without a vote, which hosts use it.
func (l *Lane) Hosts(ctx context.Context) ([]admission.HostReport, error) {
	if s := l.currentStatus(); s.State == Down || s.State == Connecting {
		return nil, fmt.Errorf("node %s is %s", s.Name, s.State)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*l.timing.silence)
	defer cancel()
	answer := make(chan hosts, 1)
	select {
	case l.hostRequests <- answer:
	case <-ctx.Done():
		return nil, fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
	select {
	case a := <-answer:
		return a.reports, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("node %s: %w", l.node.Name, context.Cause(ctx))
	}
}

// readHosts reads the hosts, as l.asksHosts requests. No other group is in progress.
func (l *Lane) readHosts(conn redis.Conn) error {
	ctx := &l.trip.deadline
	ctx.start(l.timing.silence)
	l.trip.commands = l.trip.commands[:0]
	l.appendCommand("TIME")
	l.appendCommand("HGETALL", admission.HostsKey)
	if err := l.roundTrip(ctx, conn); err != nil {
		return err
	}
	reports, err := parseHosts(&l.trip.replies[0], &l.trip.replies[1])
	l.answerHosts(hosts{reports, err})
	return nil
}

// answerHosts answers a request for the hosts, if there is one.
func (l *Lane) answerHosts(h hosts) {
	if l.asksHosts != nil {
		l.asksHosts <- h
		l.asksHosts = nil
	}
}

func parseHosts(clock, fields *redis.Reply) (all []admission.HostReport, err error) {
	switch {
	case errors.Join(clock.Err, fields.Err) != nil:
		return nil, errors.Join(clock.Err, fields.Err)
	case !isTime(clock):
		return nil, redis.UnexpectedAnswer("TIME", "seconds and microseconds", clock)
	case !script.IsFields(fields):
		return nil, redis.UnexpectedAnswer("HGETALL "+admission.HostsKey, "fields and values", fields)
	}
	seconds, _ := strconv.ParseInt(clock.Array[0].Str, 10, 64) // isTime has checked it
	for i := 0; i+1 < len(fields.Array); i += 2 {
		if r, ok := admission.ParseHostReport(fields.Array[i].Str, fields.Array[i+1].Str, time.Duration(seconds)*time.Second); ok {
			all = append(all, r)
		}
	}
	return all, nil
}
