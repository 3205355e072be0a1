package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// monitor counts the commands that clients send to a node. No counter of INFO
// does: total_commands_processed has in it what scripts call, and so have the
// calls of commandstats (Redis 7.0.15). MONITOR tells them apart. It makes the
// node slower, so figures of time are not for a slice that is counted.
type monitor struct {
	node  *node
	conn  net.Conn
	looks int64
	count chan int64 // one number, when it has seen its mark
}

// monitorLimit is how long the node may take to answer.
const monitorLimit = 10 * time.Second

// watchCommands begins to count; stop ends it.
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
	go func() { m.count <- countCommands(lines) }() // ends with the mark, or with the connection
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

// endOfWatch is what a monitor is told to stop by: a command that it sees.
const endOfWatch = "bench-end-of-watch"

// stop returns how many commands there were, this program's own looks left out.
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

// countCommands counts the lines of MONITOR until endOfWatch, but for those of
// what scripts called; -1 where they end before that.
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

// calledByScript tells from a line of MONITOR, +1339518083.107412 [0 lua] "get" "x".
func calledByScript(line string) bool {
	_, rest, _ := strings.Cut(line, " [")
	client, _, _ := strings.Cut(rest, "] ")
	return strings.HasSuffix(client, " lua")
}
