package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
)

// rawConn speaks the protocol by hand, one request at a time: for words that the
// client package may not have yet.
type rawConn struct {
	net.Conn
	lines *bufio.Reader
}

func dialRaw(ctx context.Context, socket string) (*rawConn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	return &rawConn{Conn: conn, lines: bufio.NewReader(conn)}, nil
}

// refusal is an answer that is not OK: "ERR HELD lock=…".
type refusal string

func (r refusal) Error() string { return string(r) }

// code is the word after ERR.
func (r refusal) code() string {
	fields := strings.Fields(string(r))
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// ask sends a request and waits for its answer, whatever events come before that.
// The error is a refusal where the daemon gave one.
func (c *rawConn) ask(format string, args ...any) error {
	if _, err := io.WriteString(c, fmt.Sprintf(format, args...)+"\n"); err != nil {
		return err
	}
	for {
		line, err := c.lines.ReadString('\n')
		if err != nil {
			return err
		}
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); word {
		case "OK":
			return nil
		case "ERR":
			return refusal(strings.TrimSpace(line))
		}
	}
}
