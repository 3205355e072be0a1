package devnodes

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The nodes of -dev answer as real nodes do, without the optional features of the suite.
func TestEmbeddedNodesConform(t *testing.T) {
	redlocktest.Conformance(t, embeddedTarget{})
}

type embeddedTarget struct{}

func (embeddedTarget) Lacks(redlocktest.Feature) bool { return true }

func (embeddedTarget) Run(t *testing.T, body func(*testing.T, redlocktest.Subject)) {
	server, err := startMiniredis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	body(t, &embeddedSubject{server: server})
}

type embeddedSubject struct {
	server *miniredis.Miniredis
	down   bool
}

func (s *embeddedSubject) Node() redlock.Node {
	return redlock.RedisNode(redlock.NodeOptions{Name: "m", Address: "embedded", Dial: func(context.Context) (net.Conn, error) {
		if s.down {
			return nil, errors.New("down")
		}
		return dialMiniredis(s.server)
	}})
}

func (s *embeddedSubject) Down() {
	s.down = true
	s.server.Close()
}

func (s *embeddedSubject) Up() {
	first, err := s.server.Dial() // starts it again
	if err == nil {
		first.Close()
	}
	s.down = false
}

func (s *embeddedSubject) Hang()   {}
func (s *embeddedSubject) Resume() {}
