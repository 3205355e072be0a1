//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// tlsSite is a directory with an authority, certificates and a daemon's config.
type tlsSite struct {
	*host
	ca     *authority
	caFile string
	client pair
}

func newTLSSite(t *testing.T) *tlsSite {
	t.Helper()
	needNC(t)
	dir, err := os.MkdirTemp("", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &tlsSite{host: &host{t: t, dir: dir, socket: filepath.Join(dir, "s"), config: filepath.Join(dir, "redlockd.hcl")}, ca: newAuthority(t, "ours")}
	s.caFile = s.ca.write(filepath.Join(dir, "ca.pem"))
	s.client = s.ca.issue(dir, "client", "redlockd", inAnHour())
	return s
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

// tlsNode is a node of the config.
type tlsNode struct {
	name, address  string
	ca, cert, key  string
	serverName     string
	plain          bool // no tls block
	user, password string
}

func (n *tlsNode) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %q {\naddress = %q\n", n.name, n.address)
	if n.user != "" {
		fmt.Fprintf(&b, "username = %q\npassword_file = %q\n", n.user, n.password)
	}
	if !n.plain {
		fmt.Fprintf(&b, "tls {\nca_file = %q\nserver_name = %q\n", n.ca, n.serverName)
		if n.cert != "" {
			fmt.Fprintf(&b, "cert_file = %q\nkey_file = %q\n", n.cert, n.key)
		}
		b.WriteString("}\n")
	}
	return b.String() + "}\n"
}

func (s *tlsSite) node(name, address string) tlsNode {
	return tlsNode{name: name, address: address, ca: s.caFile, cert: s.client.cert, key: s.client.key, serverName: "redis-a"}
}

func (s *tlsSite) configure(more string, nodes ...tlsNode) {
	s.t.Helper()
	text := "quorum {\nnode_timeout = \"2s\"\n"
	for i := range nodes {
		text += nodes[i].String()
	}
	writeFile(s.t, s.config, text+fmt.Sprintf("}\nsocket { path = %q }\n", s.socket)+more)
}

// STATUS and the log report each TLS fault with its node. When the files are correct, the next
// connection succeeds without a restart.
func TestTLSFaults(t *testing.T) {
	t.Parallel()
	s := newTLSSite(t)
	others := newAuthority(t, "theirs")
	good, expired := tlsPort(t), tlsPort(t)
	redlocktest.StartRedis(t, 1, withTLS(good, s.ca.issue(s.dir, "server", "redis-a", inAnHour()), s.caFile))
	redlocktest.StartRedis(t, 1, withTLS(expired, s.ca.issue(s.dir, "old", "redis-a", time.Now().Add(-time.Hour)), s.caFile))
	plain := redlocktest.StartRedis(t, 1, redlocktest.TCP()).Servers[0]

	a, b, c, d := s.node("a", "127.0.0.1:"+good), s.node("b", "127.0.0.2:"+good), s.node("c", "127.0.0.3:"+good), s.node("d", "127.0.0.1:"+expired)
	e, f, g, h := s.node("e", "127.0.0.4:"+good), s.node("f", "127.0.0.5:"+good), s.node("g", "127.0.0.6:"+good), s.node("h", plain.Addr())
	b.ca = others.write(filepath.Join(s.dir, "other-ca.pem"))
	c.serverName = "redis-c"
	e.cert = ""
	foreign := others.issue(s.dir, "foreign", "redlockd", inAnHour())
	f.cert, f.key = foreign.cert, foreign.key
	g.plain = true
	s.configure("log { level = \"debug\" }\n", a, b, c, d, e, f, g, h) // with debug, a later reason in the same state is logged too
	daemon := s.serve()
	n := s.nc()
	for node, why := range map[string]string{
		"b": "certificate signed by unknown authority",
		"c": "certificate is valid for redis-a, not redis-c",
		"d": "certificate has expired",
		"e": "certificate required",
		"f": "unknown certificate authority",
		"g": "needs a tls block",
		"h": "no answer to the TLS handshake in time",
	} {
		s.saysOf(n, node, why)
		waitFor(t, "the log has why node "+node+" is down: "+why, func() bool { return hasLine(daemon.stderr.text(), "node="+node, why) })
	}
	waitFor(t, "node a can be used, but for its quarantine", func() bool { return field(nodeLine(n, "a"), "state") == "quarantined" })

	// Files are replaced: b and f speak TLS now, but have a's certificate.
	s.ca.write(b.ca)
	s.ca.issue(s.dir, "foreign", "redlockd", inAnHour())
	s.saysOf(n, "b", `is node "a" already`)
	s.saysOf(n, "f", `is node "a" already`)
}

// If a certificate for the next connection to a node ends soon, or has ended, the daemon warns of
// it and reports it to Prometheus, while the present connection goes on. After the certificate is
// renewed, the warning ends.
func TestTLSCertificateEnds(t *testing.T) {
	t.Parallel()
	s := newTLSSite(t)
	days := func(n int) time.Time { return time.Now().AddDate(0, 0, n) }
	goodUntil := func(end time.Time) string { return end.UTC().Format("valid until 2006-01-02 15:04 UTC") }
	soon, sooner, late := days(10), days(3), days(50)
	s.client = s.ca.issue(s.dir, "client", "redlockd", days(60))
	port, metrics := tlsPort(t), "127.0.0.1:"+tlsPort(t)
	server := redlocktest.StartRedis(t, 1, withTLS(port, s.ca.issue(s.dir, "server", "redis-a", soon), s.caFile)).Servers[0]
	s.configure(fmt.Sprintf("metrics { address = %q }\n", metrics), s.node("a", "127.0.0.1:"+port))
	daemon := s.serve()
	n := s.nc()
	waitFor(t, "node a is reached", func() bool { return reached(n) == 1 })
	s.saysOf(n, "a", "its certificate, or one of its authority, is "+goodUntil(soon))
	waitFor(t, "the log says so", func() bool {
		return hasLine(daemon.stderr.text(), "a certificate must be renewed", "node=a", goodUntil(soon))
	})
	waitFor(t, "its lane and its listener are connected", func() bool { return len(connectionsOf(t, []*redlocktest.Server{server})) == 2 })
	before := connectionsOf(t, []*redlocktest.Server{server})

	show := func(p pair) {
		t.Helper()
		tell(t, server, "CONFIG", "SET", "tls-cert-file", p.cert, "tls-key-file", p.key)
		daemon.signal(syscall.SIGHUP)
	}
	renewed := s.ca.issue(s.dir, "renewed", "redis-a", late)
	show(renewed)
	waitFor(t, "nothing is said of certificates", func() bool { return !strings.Contains(nodeLine(n, "a"), "valid until") })
	if want := `redlockd_node_certificate_end_timestamp_seconds{node="a"} ` + strconv.FormatFloat(float64(late.Unix()), 'g', -1, 64); !strings.Contains(scrape(t, metrics), want) {
		t.Errorf("the metrics lack %s", want)
	}
	show(s.ca.issue(s.dir, "over", "redis-a", days(-1)))
	s.saysOf(n, "a", "redlockd cannot reconnect to it: tls: failed to verify certificate: x509: certificate has expired")
	s.ca.issue(s.dir, "client", "redlockd", sooner)
	show(renewed)
	s.saysOf(n, "a", "cert_file "+s.client.cert+" is "+goodUntil(sooner))
	if after := connectionsOf(t, []*redlocktest.Server{server}); !slices.Equal(after, before) {
		t.Errorf("connections before %v and after it %v, want the same", before, after)
	}
}

// saysOf waits until STATUS shows that reason for a node.
func (s *tlsSite) saysOf(n *terminal, node, why string) {
	s.t.Helper()
	line := ""
	defer func() { s.t.Log(line) }()
	waitFor(s.t, fmt.Sprintf("STATUS says of node %s: %s", node, why), func() bool {
		line = nodeLine(n, node)
		return strings.Contains(line, why)
	})
}

func hasLine(text string, words ...string) bool {
	return slices.ContainsFunc(strings.Split(text, "\n"), func(line string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
	})
}

// Passwords, certificates and authorities are changed while locks are held. SIGHUP does not touch
// connections, and says so. The next connection uses the new files. The locks stay held.
func TestTLSFilesAreReplaced(t *testing.T) {
	t.Parallel()
	s := newTLSSite(t)
	password := filepath.Join(s.dir, "password")
	writeFile(t, password, "first secret\n")
	var nodes []tlsNode
	var servers []*redlocktest.Server
	for i := range 3 {
		port := tlsPort(t)
		server := redlocktest.StartRedis(t, 1, withTLS(port, s.ca.issue(s.dir, fmt.Sprint("server", i), "redis-a", inAnHour()), s.caFile)).Servers[0]
		node := s.node(string(rune('a'+i)), "127.0.0.1:"+port)
		node.user, node.password = "redlockd", password
		nodes, servers = append(nodes, node), append(servers, server)
		tell(t, server, "ACL", "SETUSER", "redlockd", "on", ">first secret", "~*", "&*", "+@all")
	}
	s.configure("", nodes...)
	daemon := s.serve()
	n := s.nc()
	waitFor(t, "all nodes are reached", func() bool { return reached(n) == 3 })
	n.expect("ADMIT all", "- node=a state=ready")
	n.comes("- node=b state=ready")
	n.comes("- node=c state=ready")
	n.comes("OK n=3")
	n.expect("LOCK job ttl=20s", "OK lock=job")
	waitFor(t, "two connections to each node", func() bool { return len(connectionsOf(t, servers)) == 6 })
	before := connectionsOf(t, servers)

	// Another password and another authority, on both sides.
	next := newAuthority(t, "next")
	next.write(s.caFile)
	next.issue(s.dir, "client", "redlockd", inAnHour())
	writeFile(t, password, "second secret\n")
	for i, server := range servers {
		p := next.issue(s.dir, fmt.Sprint("server", i), "redis-a", inAnHour())
		tell(t, server, "ACL", "SETUSER", "redlockd", "resetpass", ">second secret")
		tell(t, server, "CONFIG", "SET", "tls-cert-file", p.cert, "tls-key-file", p.key, "tls-ca-cert-file", s.caFile)
	}
	daemon.signal(syscall.SIGHUP)
	line := awaitLog(daemon, "config reloaded")
	if want := "passwords and certificates are read at the next connection to a node"; !strings.Contains(line, want) {
		t.Errorf("the log says %q, want it to say: %s", line, want)
	}
	n.expect("EXTEND job ttl=20s", "OK lock=job")
	if after := connectionsOf(t, servers); !slices.Equal(after, before) {
		t.Errorf("connections to the nodes before SIGHUP %v and after it %v, want the same", before, after)
	}
	for _, server := range servers {
		tell(t, server, "CLIENT", "KILL", "USER", "redlockd")
	}
	waitFor(t, "all nodes are reached again", func() bool {
		now := connectionsOf(t, servers)
		return spare(n) == 1 && len(now) == len(before) && !slices.ContainsFunc(now, func(id string) bool { return slices.Contains(before, id) })
	})
	n.expect("CHECK job", "OK lock=job")

	// The key does not match the certificate, as between two writes of a renewal. Present
	// connections go on. A new connection's error names the files.
	other := next.issue(s.dir, "other", "redlockd", inAnHour())
	rename(t, other.key, s.client.key)
	tell(t, servers[0], "CLIENT", "KILL", "USER", "redlockd")
	s.saysOf(n, "a", s.client.key+", which does not match "+s.client.cert)
	n.expect("EXTEND job ttl=20s", "OK lock=job")
	rename(t, other.cert, s.client.cert)
	waitFor(t, "node a is ready", func() bool { return field(nodeLine(n, "a"), "state") == "ready" })

	// A wrong password.
	writeFile(t, password, "third secret\n")
	tell(t, servers[1], "CLIENT", "KILL", "USER", "redlockd")
	s.saysOf(n, "b", "WRONGPASS")
	writeFile(t, password, "second secret\n")
	waitFor(t, "node b is ready", func() bool { return field(nodeLine(n, "b"), "state") == "ready" })
	n.expect("CHECK job", "OK lock=job")
	for _, secret := range []string{"first secret", "second secret", "third secret"} {
		if strings.Contains(daemon.stderr.text(), secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func tell(t *testing.T, server *redlocktest.Server, command ...string) string {
	t.Helper()
	reply, err := server.Do(command...)
	if err != nil || reply.Err != nil {
		t.Fatalf("%s: %q: %v %v", server.Name(), command, err, reply.Err)
	}
	return reply.Str
}

// reached returns how many nodes wait only for the end of their quarantine.
func reached(n *terminal) (nodes int) {
	n.t.Helper()
	for _, line := range n.lines("STATUS") {
		if state := field(line, "state"); state == "quarantined" || state == "ready" {
			nodes++
		}
	}
	return nodes
}

// connectionsOf returns the ids of the daemon's connections.
func connectionsOf(t *testing.T, servers []*redlocktest.Server) (ids []string) {
	t.Helper()
	for _, server := range servers {
		for line := range strings.Lines(tell(t, server, "CLIENT", "LIST")) {
			if strings.HasPrefix(field(line, "name"), "redlockd") {
				ids = append(ids, server.Addr()+" "+field(line, "id"))
			}
		}
	}
	slices.Sort(ids)
	return ids
}
