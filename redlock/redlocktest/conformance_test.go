package redlocktest

import (
	"testing"
	"testing/synctest"

	"github.com/redlockd/redlockd/redlock"
)

func TestConformanceOfSim(t *testing.T) { Conformance(t, simTarget{}) }

func TestConformanceOfSimInRealTime(t *testing.T) { Conformance(t, simTarget{realTime: true}) }

func TestConformanceOfRedis(t *testing.T) {
	server := StartRedis(t, 1).Servers[0]
	Conformance(t, serverTarget{server, server.Node()})
}

func TestConformanceOfRedisOverTCP(t *testing.T) {
	server := StartRedis(t, 1, TCP()).Servers[0]
	Conformance(t, serverTarget{server, server.Node()})
}

// TestConformanceOfInspectionClient checks the client with which tests inspect servers.
func TestConformanceOfInspectionClient(t *testing.T) {
	server := StartRedis(t, 1).Servers[0]
	Conformance(t, serverTarget{server, respNode(server.Name(), server.Addr())})
}

// simTarget runs each case with a new node.
type simTarget struct{ realTime bool }

func (simTarget) Lacks(Feature) bool { return false }

func (target simTarget) Run(t *testing.T, body func(*testing.T, Subject)) {
	run := func(t *testing.T) {
		sim := NewSim("a")
		t.Cleanup(sim.Close)
		body(t, sim)
	}
	if target.realTime {
		run(t)
	} else {
		synctest.Test(t, run)
	}
}

// serverTarget runs all cases with one server. It empties the server before each case.
type serverTarget struct {
	server *Server
	node   redlock.Node
}

func (target serverTarget) Lacks(feature Feature) bool {
	return feature == Messages && target.node.Listen == nil
}

func (target serverTarget) Run(t *testing.T, body func(*testing.T, Subject)) {
	if err := target.server.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := target.server.Do("SCRIPT", "FLUSH"); err != nil {
		t.Fatal(err)
	}
	body(t, serverSubject{t, target})
}

// serverSubject is a server with its faults, for one case.
type serverSubject struct {
	testing.TB
	target serverTarget
}

func (s serverSubject) Node() redlock.Node { return s.target.node }
func (s serverSubject) Down()              { s.target.server.Kill() }
func (s serverSubject) Up()                { s.try(s.target.server.Restart()) }
func (s serverSubject) Hang()              { s.try(s.target.server.Stop()) }
func (s serverSubject) Resume()            { s.try(s.target.server.Cont()) }

func (s serverSubject) try(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
