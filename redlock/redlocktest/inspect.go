package redlocktest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

const inspectTimeout = time.Minute

// Do sends one command on a separate connection and returns the reply. The error is about the
// connection; a refusal by the server is in the reply. Do waits at most 10 s for an unresponsive
// server (Stop).
func (s *Server) Do(args ...string) (redlock.Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), inspectTimeout)
	defer cancel()
	reply, err := s.ask(ctx, args...)
	if err != nil {
		err = fmt.Errorf("redis-server %s: %s: %w", s.name, args[0], err)
	}
	return reply, err
}

func (s *Server) ask(ctx context.Context, args ...string) (redlock.Reply, error) {
	conn, err := dialRESP(ctx, s.Addr())
	if err != nil {
		return redlock.Reply{}, err
	}
	defer conn.Close()
	var reply [1]redlock.Reply
	err = conn.Do(ctx, []redlock.Command{args}, reply[:])
	return reply[0], err
}

// must calls Do for a command that the server should not refuse.
func (s *Server) must(args ...string) (redlock.Reply, error) {
	reply, err := s.Do(args...)
	if err == nil && reply.Err != nil {
		err = fmt.Errorf("redis-server %s: %s: %w", s.name, args[0], reply.Err)
	}
	return reply, err
}

// Get returns the string at key; "" if there is none.
func (s *Server) Get(key string) (string, error) {
	reply, err := s.must("GET", key)
	return reply.Str, err
}

// Keys returns the keys that match a pattern ("*": all), sorted.
func (s *Server) Keys(pattern string) ([]string, error) {
	reply, err := s.must("KEYS", pattern)
	keys := make([]string, 0, len(reply.Array))
	for _, key := range reply.Array {
		keys = append(keys, key.Str)
	}
	slices.Sort(keys)
	return keys, err
}

// FlushAll deletes all keys. The script cache stays.
func (s *Server) FlushAll() error {
	_, err := s.must("FLUSHALL", "SYNC")
	return err
}

// CommandCounts is how many commands a server has executed since it started. It includes
// the commands that inspect it and the commands that scripts call.
type CommandCounts struct {
	Total  int64            // including the commands that scripts call
	ByName map[string]int64 // "evalsha", "client|id", and "set" also if a script calls it
}

// Commands returns the counts of the commands that the server has executed.
func (s *Server) Commands() (CommandCounts, error) {
	reply, err := s.must("INFO", "stats", "commandstats")
	counts := CommandCounts{ByName: map[string]int64{}}
	for line := range strings.SplitSeq(reply.Str, "\r\n") {
		counts.addLine(line)
	}
	return counts, err
}

// addLine parses "total_commands_processed:7" and "cmdstat_get:calls=2,usec=…".
func (c *CommandCounts) addLine(line string) {
	key, value, _ := strings.Cut(line, ":")
	if key == "total_commands_processed" {
		c.Total, _ = strconv.ParseInt(value, 10, 64)
		return
	}
	name, isCommand := strings.CutPrefix(key, "cmdstat_")
	calls, _, _ := strings.Cut(value, ",")
	digits, isCalls := strings.CutPrefix(calls, "calls=")
	if n, err := strconv.ParseInt(digits, 10, 64); isCommand && isCalls && err == nil {
		c.ByName[name] = n
	}
}
