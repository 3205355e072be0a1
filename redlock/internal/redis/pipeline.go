package redis

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
)

// The driver has no call that writes a group without waiting for the replies. So Send writes the
// group itself, straight to the connection. Receive then lets the driver do the same group.
// guardedConn compares what the driver writes with what Send has written, byte by byte, and drops
// it, and the driver reads the replies. So the driver does one group at a time, as for Do, and
// each byte of a reply passes guardedConn and the driver.
//
// The driver's own pipeline would also work, with a goroutine for each group in progress that
// waits in DoMulti. But it passes each group through four goroutines, does not report when a
// group has its position in the order, and never leaves that mode again.

// sentGroup is a group that was sent and not received yet.
type sentGroup struct {
	commands []Command
	bytes    []byte // the bytes that were written
}

// sentGroups are the groups that were sent and not received, the oldest first.
type sentGroups struct {
	mu     sync.Mutex // guards what follows; no other mutex is taken inside it
	groups []sentGroup
	spare  [][]byte // buffers that can be reused
}

// maxSpare is the largest buffer that is kept, enough for an ordinary group.
const maxSpare = 16 << 10

func (s *sentGroups) buffer() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.spare) - 1
	if last < 0 {
		return nil
	}
	b := s.spare[last]
	s.spare = s.spare[:last]
	return b[:0]
}

func (s *sentGroups) push(g sentGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, g)
}

func (s *sentGroups) oldest() (g sentGroup, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.groups) == 0 {
		return sentGroup{}, false
	}
	return s.groups[0], true
}

// pop removes the oldest group, which was received.
func (s *sentGroups) pop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.groups[0].bytes; cap(b) <= maxSpare {
		s.spare = append(s.spare, b)
	}
	n := copy(s.groups, s.groups[1:])
	s.groups[n] = sentGroup{}
	s.groups = s.groups[:n]
}

// Send returns when the operating system has accepted all bytes of the group.
func (c *redisConn) Send(ctx context.Context, group []Command) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := c.sent.buffer()
	for _, command := range group {
		b = appendCommand(b, command)
	}
	c.guard.announce(len(group))
	c.sent.push(sentGroup{group, b})
	deadline, _ := ctx.Deadline()
	err := c.guard.writeAhead(b, deadline)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return context.DeadlineExceeded
	}
	if err != nil {
		return explainHangUp(err)
	}
	return nil
}

var errNothingSent = errors.New("a defect in redlockd: no group is in progress")

// Receive makes the driver read the replies to the oldest group.
func (c *redisConn) Receive(ctx context.Context, replies []Reply) error {
	g, ok := c.sent.oldest()
	if !ok {
		return errNothingSent
	}
	c.guard.expectWritten(g.bytes)
	err := c.doGroup(ctx, g.commands, replies)
	if left := c.guard.endWritten(); err == nil {
		err = left
	}
	if err != nil {
		return err
	}
	c.sent.pop()
	return nil
}

// appendCommand appends a command in the Redis protocol.
func appendCommand(b []byte, command Command) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(command)), 10)
	b = append(b, '\r', '\n')
	for _, word := range command {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(word)), 10)
		b = append(b, '\r', '\n')
		b = append(b, word...)
		b = append(b, '\r', '\n')
	}
	return b
}
