package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// settleTime is how long a daemon idles before its memory is read.
const settleTime = 3 * time.Second

// memory is the memory of an idle daemon.
type memory struct {
	Idle    int64 `json:"idle_bytes"`     // resident, with all nodes connected
	Conns   int   `json:"connections"`    // idle connections that were added
	PerConn int64 `json:"per_conn_bytes"` // resident, for each connection
}

// measureMemory measures an idle daemon, first without and then with idle connections that were
// used once.
func measureMemory(ctx context.Context, env *environment, conns int, logs io.Writer) (m *memory, err error) {
	fmt.Fprintf(logs, "memory: an idle daemon, then one with %d connections\n", conns)
	d, err := env.startDaemon(ctx, "memory")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	m = &memory{Conns: conns}
	if m.Idle, err = settledMemory(ctx, d); err != nil {
		return nil, err
	}
	idle, err := connectAll(ctx, d.socket, conns)
	defer closeConns(idle)
	if err != nil {
		return nil, fmt.Errorf("connection number %d: %w", len(idle)+1, err)
	}
	with, err := settledMemory(ctx, d)
	m.PerConn = (with - m.Idle) / int64(conns)
	return m, err
}

func settledMemory(ctx context.Context, d *daemon) (int64, error) {
	if err := pause(ctx, settleTime); err != nil {
		return 0, err
	}
	return residentBytes(d.pid())
}

// connectAll makes n connections. After an error it returns those that it has made.
func connectAll(ctx context.Context, socket string, n int) ([]net.Conn, error) {
	var made []net.Conn
	for range n {
		conn, err := usedOnce(ctx, socket)
		if err != nil {
			return made, err
		}
		made = append(made, conn)
	}
	return made, nil
}

// usedOnce returns a connection on which the daemon has answered a PING.
func usedOnce(ctx context.Context, socket string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	err = ping(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func ping(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReaderSize(conn, 64).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "OK") {
		err = fmt.Errorf("PING was answered by %q", answer)
	}
	return err
}

func closeConns(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}
