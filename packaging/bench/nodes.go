package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// nodeCount is how many redis-servers all contenders lock on; a quorum of them
// must grant.
const (
	nodeCount = 5
	quorum    = nodeCount/2 + 1
)

// node is one redis-server, on a TCP port as in real life.
type node struct {
	*redlocktest.Server
	looks int64 // commands of ours that the server has executed
}

// startNodes starts the redis-servers, for who has that key_prefix, and returns once all of
// them answer.
func startNodes(dir, prefix string) ([]*node, error) {
	var nodes []*node
	for i := range nodeCount {
		s, err := redlocktest.LaunchRedis(filepath.Join(dir, string(rune('a'+i))), redlocktest.TCP())
		if err != nil {
			killNodes(nodes)
			return nil, err
		}
		nodes = append(nodes, &node{Server: s})
	}
	if err := admit(nodes, prefix); err != nil {
		killNodes(nodes)
		return nil, err
	}
	return nodes, nil
}

// admit ends the quarantine of the new nodes, so that they may vote at once.
func admit(nodes []*node, prefix string) error {
	all := make([]redlock.Node, len(nodes))
	for i, n := range nodes {
		all[i] = n.Node()
	}
	return redlocktest.Admit(context.Background(), all, prefix)
}

func killNodes(nodes []*node) {
	for _, n := range nodes {
		n.Kill()
	}
}

// resume ends a hang, if there is one.
func (n *node) resume() {
	_ = n.Cont() // fails only where the process is gone, as its next use will tell
}

// wake ends a hang and waits until the node has worked off what piled up.
func (n *node) wake() error {
	n.resume()
	n.looks++
	_, err := n.Do("PING")
	return err
}

// counters is what the nodes have done since they started, all of them together.
type counters struct {
	commands int64 // that were sent to them, ours left out
	reads    int64 // read calls on client connections: what grouping saves
}

func (c counters) since(start counters) counters {
	return counters{commands: c.commands - start.commands, reads: c.reads - start.reads}
}

// countersOf asks every node; none may hang.
func countersOf(nodes []*node) (counters, error) {
	var sum counters
	for _, n := range nodes {
		reply, err := n.Do("INFO", "stats")
		if err != nil {
			return sum, err
		}
		sum.commands += infoNumber(reply.Str, "total_commands_processed") - n.looks
		sum.reads += infoNumber(reply.Str, "total_reads_processed") - 2*n.looks // each ends with the read of an end
		n.looks++
	}
	return sum, nil
}

// infoNumber returns a number out of INFO's text, 0 where it is not there.
func infoNumber(info, name string) int64 {
	_, rest, _ := strings.Cut(info, "\r\n"+name+":")
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 when it fails, as promised
	return n
}

// keys returns the keys on the node that have mark in their name.
func (n *node) keys(mark string) ([]string, error) {
	n.looks++
	return n.Keys("*" + mark + "*")
}

// leftBehind counts the keys with mark in their name over all nodes.
func leftBehind(nodes []*node, mark string) (int, error) {
	sum := 0
	for _, n := range nodes {
		keys, err := n.keys(mark)
		if err != nil {
			return 0, err
		}
		sum += len(keys)
	}
	return sum, nil
}

// usedBy returns the CPU time that the nodes have spent so far.
func usedBy(nodes []*node) (time.Duration, error) {
	var sum time.Duration
	for _, n := range nodes {
		s, err := n.CPUSeconds()
		if err != nil {
			return 0, fmt.Errorf("%s: %w", n.Name(), err)
		}
		sum += time.Duration(s * float64(time.Second))
	}
	return sum, nil
}
