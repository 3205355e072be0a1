package server

import (
	"io"
	"net"
	"testing"
)

// Unread answers stop the server from taking lines. If the client reads them between that check and
// the wait, the server goes on without further input.
func TestStallThatEndsBeforeTheWait(t *testing.T) {
	d := newFake()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := newConn(&d.Server, there)
	c.session, _ = d.open(c)
	go io.WriteString(here, "PING\n@a PING\n")
	if err := c.in.receive(c.fairness.readSize()); err != nil {
		t.Fatal(err)
	}
	c.out.size.Store(int64(c.out.pause) + 1)
	if c.step() {
		t.Fatal("a line was taken although too much is unread")
	}
	c.out.size.Store(0)
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		c.await()
	}()
	await(t, waited, "another look at the lines that are there")
	go func() {
		for c.step() {
		}
		c.uncork()
	}()
	hear(t, here, "OK\n@a OK\n")
	c.drain()
	c.wg.Wait()
}
