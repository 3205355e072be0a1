package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// nodeCount is the number of redis-servers that the contenders of all parts but one share; a quorum
// of them must grant.
const (
	nodeCount = 5
	quorum    = nodeCount/2 + 1
)

// node is one redis-server on a TCP port.
type node struct {
	*redlocktest.Server
	looks int64  // commands of the benchmark itself that the server has executed
	via   string // its address on the emulated network; empty: its own address
}

// address returns the address that contenders use.
func (n *node) address() string {
	if n.via != "" {
		return n.via
	}
	return n.Addr()
}

// startNodes starts that many redis-servers for clients with that key_prefix, and returns when all
// of them answer.
func startNodes(dir, prefix string, count int) ([]*node, error) {
	var nodes []*node
	for i := range count {
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

func addressesOf(nodes []*node) []string {
	var addresses []string
	for _, n := range nodes {
		addresses = append(addresses, n.address())
	}
	return addresses
}

func killNodes(nodes []*node) {
	for _, n := range nodes {
		n.Kill()
	}
}

// resume continues a stopped node.
func (n *node) resume() {
	_ = n.Cont() // fails only if the process has ended, which its next use reports
}

// wake continues a node and waits until it has executed all pending requests.
func (n *node) wake() error {
	n.resume()
	n.looks++
	_, err := n.Do("PING")
	return err
}

// counters are sums over all nodes since their start.
type counters struct {
	commands int64 // commands that they got, without those of the benchmark itself
	reads    int64 // read calls on client connections, which grouping saves
}

func (c counters) since(start counters) counters {
	return counters{commands: c.commands - start.commands, reads: c.reads - start.reads}
}

// countersOf queries every node; none may hang.
func countersOf(nodes []*node) (counters, error) {
	var sum counters
	for _, n := range nodes {
		reply, err := n.Do("INFO", "stats")
		if err != nil {
			return sum, err
		}
		sum.commands += infoNumber(reply.Str, "total_commands_processed") - n.looks
		sum.reads += infoNumber(reply.Str, "total_reads_processed") - 2*n.looks // each query also causes the read of the connection's end
		n.looks++
	}
	return sum, nil
}

// infoNumber returns a number from INFO's text, or 0 if it is missing.
func infoNumber(info, name string) int64 {
	_, rest, _ := strings.Cut(info, "\r\n"+name+":")
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 if it fails
	return n
}

// keys returns the node's keys with mark in their names.
func (n *node) keys(mark string) ([]string, error) {
	n.looks++
	return n.Keys("*" + mark + "*")
}

// leftBehind counts the keys with mark in their names on all nodes.
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

// usedBy returns the CPU time that the nodes have used so far.
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

// monitor counts the commands that clients send to a node. No counter of INFO does that:
// total_commands_processed and the calls of commandstats include the commands that scripts call
// (Redis 7.0.15). MONITOR distinguishes them. It slows the node down, so a counted slice gives no
// times.
type monitor struct {
	node  *node
	conn  net.Conn
	looks int64
	count chan int64 // gets one number, after the mark
}

// monitorLimit is how long the node may take to answer.
const monitorLimit = 10 * time.Second

// watchCommands starts to count; stop ends it.
func watchCommands(ctx context.Context, n *node) (*monitor, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return nil, err
	}
	m := &monitor{node: n, conn: conn, looks: n.looks, count: make(chan int64, 1)}
	lines := bufio.NewReaderSize(conn, 1<<16)
	if err := m.begin(lines); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%s: MONITOR: %w", n.Name(), err)
	}
	go func() { m.count <- countCommands(lines) }() // ends with the mark or with the connection
	return m, nil
}

func (m *monitor) begin(lines *bufio.Reader) error {
	if err := m.conn.SetDeadline(time.Now().Add(monitorLimit)); err != nil {
		return err
	}
	if _, err := io.WriteString(m.conn, "MONITOR\r\n"); err != nil {
		return err
	}
	answer, err := lines.ReadString('\n')
	if err == nil && answer != "+OK\r\n" {
		err = fmt.Errorf("it was answered by %q", answer)
	}
	if err != nil {
		return err
	}
	return m.conn.SetDeadline(time.Time{})
}

// endOfWatch is a command that ends the count when the monitor sees it.
const endOfWatch = "bench-end-of-watch"

// stop returns the number of commands, without those of the benchmark itself.
func (m *monitor) stop() (int64, error) {
	defer m.conn.Close()
	looks := m.node.looks - m.looks
	if _, err := m.node.Do("ECHO", endOfWatch); err != nil {
		return 0, err
	}
	m.node.looks++
	select {
	case n := <-m.count:
		if n < 0 {
			return 0, fmt.Errorf("%s: MONITOR ended early", m.node.Name())
		}
		return n - looks, nil
	case <-time.After(monitorLimit):
		return 0, fmt.Errorf("%s: MONITOR has not shown everything after %v", m.node.Name(), monitorLimit)
	}
}

// countCommands counts the lines of MONITOR until endOfWatch, without commands that scripts called.
// It returns -1 if the lines end before that.
func countCommands(lines *bufio.Reader) int64 {
	for n := int64(0); ; {
		line, err := lines.ReadString('\n')
		switch {
		case err != nil:
			return -1
		case strings.Contains(line, endOfWatch):
			return n
		case !calledByScript(line):
			n++
		}
	}
}

// calledByScript reports whether a line of MONITOR is from a script: +1339518083.107412 [0 lua]
// "get" "x".
func calledByScript(line string) bool {
	_, rest, _ := strings.Cut(line, " [")
	client, _, _ := strings.Cut(rest, "] ")
	return strings.HasSuffix(client, " lua")
}
