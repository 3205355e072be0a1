package redlocktest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestClusterServersAreIndependent(t *testing.T) {
	cluster := StartRedis(t, 3)
	for i, s := range cluster.Servers {
		setKey(t, s, "k", s.Name())
		value, err := s.Get("k")
		if err != nil || value != nodeName(i) {
			t.Errorf("server %d: got %q and error %v, want %q", i, value, err, nodeName(i))
		}
	}
	if got := len(cluster.Nodes()); got != 3 {
		t.Errorf("Nodes: got %d, want 3", got)
	}
}

func TestServerKeysAndFlush(t *testing.T) {
	s := StartRedis(t, 1, TCP()).Servers[0]
	if !strings.HasPrefix(s.Addr(), "127.0.0.1:") {
		t.Errorf("Addr with TCP: got %q", s.Addr())
	}
	setKey(t, s, "b", "v")
	setKey(t, s, "a", "v")
	wantKeys(t, s, "[a b]")
	if err := s.FlushAll(); err != nil {
		t.Error(err)
	}
	wantKeys(t, s, "[]")
}

func TestServerRestartsEmptyAtItsAddress(t *testing.T) {
	s := StartRedis(t, 1).Servers[0]
	address, pid := s.Addr(), s.PID()
	setKey(t, s, "k", "v")
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Error("a killed server answered")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "[]")
	if s.Addr() != address || s.PID() == pid {
		t.Errorf("after a restart: got address %s and pid %d, want %s and another pid than %d", s.Addr(), s.PID(), address, pid)
	}
}

func TestServerStopsAndResumes(t *testing.T) {
	s := StartRedis(t, 1).Servers[0]
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if reply, err := s.ask(ctx, "PING"); err == nil {
		t.Errorf("a stopped server answered %s", show(reply))
	}
	if err := s.Cont(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Do("PING"); err != nil {
		t.Error(err)
	}
}

func TestServerIsKilledWhileStopped(t *testing.T) {
	s := StartRedis(t, 1).Servers[0]
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "[]")
}

func TestServerCounts(t *testing.T) {
	s := StartRedis(t, 1).Servers[0]
	before, err := s.Commands()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		setKey(t, s, fmt.Sprint(i), "v")
	}
	after, err := s.Commands()
	if err != nil {
		t.Fatal(err)
	}
	if sets := after.ByName["set"] - before.ByName["set"]; sets != 7 {
		t.Errorf("commands called set: got %d, want 7", sets)
	}
	if total := after.Total - before.Total; total != 8 {
		t.Errorf("commands in total: got %d, want 7 SET and an INFO", total)
	}
	cpu, err := s.CPUSeconds()
	if err != nil || cpu < 0 || cpu > time.Minute.Seconds() {
		t.Errorf("CPUSeconds: got %v and error %v", cpu, err)
	}
}

func TestServerStartErrorNamesCause(t *testing.T) {
	_, err := LaunchRedis(filepath.Join(t.TempDir(), "x"), TCP(), Args("--maxmemory", "much"))
	if err == nil || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("redis-server with a wrong argument: got error %v, want one that names it", err)
	}
}

func TestServerMissingSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := LaunchRedis(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("without redis-server: got error %v, want one that says what to install", err)
	}
}

func setKey(t *testing.T, s *Server, key, value string) {
	t.Helper()
	if _, err := s.must("SET", key, value); err != nil {
		t.Fatal(err)
	}
}

func wantKeys(t *testing.T, s *Server, want string) {
	t.Helper()
	keys, err := s.Keys("*")
	if err != nil || fmt.Sprint(keys) != want {
		t.Errorf("keys of server %s: got %v and error %v, want %s", s.Name(), keys, err, want)
	}
}

func TestFreePortNeverReturnsPortTwice(t *testing.T) {
	seen := map[int]bool{}
	for range 3000 { // of some 28,000 that the kernel chooses from: some would come twice
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d came twice", port)
		}
		seen[port] = true
	}
}
