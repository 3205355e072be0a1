//go:build linux

package e2e

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// 60 daemons connect again to a node with the slowest usual key (RSA-4096) when it was killed and
// started. The node works off a handshake even if its daemon has left. So daemons that come back soon after a
// failure keep it busy for ever, with hundreds of connections a second; each connects a few times
// if its limits grow. Only with REDLOCKD_LONG: the daemons need 2 GB, and a minute.
func TestTLSFleetConnectsAgain(t *testing.T) {
	if !effort.IsLong() {
		return
	}
	const daemons, connectionsOfOne = 60, 20
	s := newTLSSite(t)
	key, err := rsa.GenerateKey(rand.Reader, 4096)
	if err != nil {
		t.Fatal(err)
	}
	port := tlsPort(t)
	server := redlocktest.StartRedis(t, 1, withTLS(port, s.ca.issueTo(key, s.dir, "server", "redis-a", inAnHour()), s.caFile)).Servers[0]
	node := s.node("a", "127.0.0.1:"+port)
	var clients []*client.Client
	for i := range daemons {
		dir := filepath.Join(s.dir, strconv.Itoa(i))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		h := &host{t: t, dir: dir, socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "redlockd.hcl")}
		writeFile(t, h.config, fmt.Sprintf("quorum {\n%v}\nsocket { path = %q }\n", &node, h.socket))
		h.serve()
		c, err := client.Dial(within(t), h.socket)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	connected := func() (n int) {
		for _, c := range clients {
			status, err := c.Status(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if state := status.Nodes[0].State; state == "ready" || state == "quarantined" {
				n++
			}
		}
		return n
	}
	waitWithin(t, 2*time.Minute, "all daemons reach the node", func() bool { return connected() == daemons })
	server.Kill()
	waitWithin(t, time.Minute, "all daemons know that the node is down", func() bool { return connected() == 0 })
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	waitWithin(t, 2*time.Minute, "all daemons reach the node again", func() bool { return connected() == daemons })
	reply, err := server.Do("INFO", "stats")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(reply.Str, "total_connections_received:")
	number, _, _ := strings.Cut(rest, "\r")
	connections, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all back after %v, with %d connections", time.Since(begin).Round(10*time.Millisecond), connections)
	if connections > daemons*connectionsOfOne {
		t.Errorf("%d connections, want at most %d", connections, daemons*connectionsOfOne)
	}
}
