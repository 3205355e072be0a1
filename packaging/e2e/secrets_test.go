//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// secretSite is a daemon with secrets of every kind, which logs at the most verbose level.
type secretSite struct {
	*tlsSite
	servers []*redlocktest.Server
	metrics string
	daemon  *process
	secrets map[string]string // what no other user may see, by description
	said    map[string]string // output of the daemon, by place
}

const (
	fromCredentials = "credential-Zk3vQ9wX"
	fromFile        = `quote"d \ pass-Rw7bN2mT`
	wrongPassword   = "mistaken-Lp5cD8hY"
	echoedPassword  = "echoed-Hs6fJ4gU"
)

// newSecretSite: node a has its password from systemd's credentials, b from a file, c has a client
// key, and d is not a Redis: it answers with what it was sent.
func newSecretSite(t *testing.T) *secretSite {
	t.Helper()
	s := &secretSite{tlsSite: newTLSSite(t), metrics: "127.0.0.1:" + tlsPort(t), said: map[string]string{}, secrets: map[string]string{
		"a's password": fromCredentials, "b's password": fromFile, "a wrong password": wrongPassword, "d's password": echoedPassword}}
	s.secrets["b's password, quoted"] = fmt.Sprintf("%q", fromFile)
	port := tlsPort(t)
	for _, options := range [][]redlocktest.Option{nil, nil, {withTLS(port, s.ca.issue(s.dir, "server", "redis-a", inAnHour()), s.caFile)}, nil} {
		s.servers = append(s.servers, redlocktest.StartRedis(t, 1, options...).Servers...)
	}
	tell(t, s.servers[0], "ACL", "SETUSER", "redlockd", "on", ">"+fromCredentials, "~*", "+@all")
	tell(t, s.servers[1], "ACL", "SETUSER", "redlockd", "on", ">"+fromFile, "~*", "+@all")
	parrot := redlocktest.StartImpostor(t, s.servers[3], repeatArguments)
	if err := os.Mkdir(filepath.Join(s.dir, "credentials"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.dir, "credentials", "a-password"), fromCredentials+"\n")
	writeFile(t, filepath.Join(s.dir, "b-password"), fromFile+"\n")
	writeFile(t, filepath.Join(s.dir, "d-password"), echoedPassword+"\n")
	a, b := tlsNode{name: "a", address: s.servers[0].Addr(), plain: true, user: "redlockd", password: "a-password"}, tlsNode{name: "b", address: s.servers[1].Addr(), plain: true, user: "redlockd", password: filepath.Join(s.dir, "b-password")}
	d := tlsNode{name: "d", address: parrot.Addr(), plain: true, user: "redlockd", password: filepath.Join(s.dir, "d-password")}
	s.configure(fmt.Sprintf("log { level = \"trace\" }\nmetrics { address = %q }\n", s.metrics), a, b, s.node("c", "127.0.0.1:"+port), d)
	for i, line := range keyLines(t, s.client.key) {
		s.secrets[fmt.Sprintf("line %d of c's key", i)] = line
	}
	return s
}

// repeatArguments answers as Redis does to an unknown command.
func repeatArguments(q *redlocktest.Question) bool {
	var b strings.Builder
	fmt.Fprintf(&b, "-ERR unknown command '%s', with args beginning with:", q.Command[0])
	for _, word := range q.Command[1:] {
		fmt.Fprintf(&b, " '%s'", word)
	}
	_, err := io.WriteString(q.Conn, b.String()+"\r\n")
	return err == nil
}

// keyLines returns the lines of a private key that are too long to occur by chance.
func keyLines(t *testing.T, file string) (lines []string) {
	t.Helper()
	for line := range strings.Lines(readFile(t, file)) {
		if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-----") {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		t.Fatal("the key has no lines")
	}
	return lines
}

func (s *secretSite) start() {
	s.t.Helper()
	cmd := exec.Command(filepath.Join(binaries, "redlockd"), "-config", s.config)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "CREDENTIALS_DIRECTORY="+filepath.Join(s.dir, "credentials"), "GOTRACEBACK=all")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.daemon = startCommand(s.t, cmd)
	awaitLog(s.daemon, "serving: ")
}

// No output of the daemon contains a password, a part of a private key, another user's lease id or
// a token. The test uses log level trace, without and with faults, and even the stacks of all
// goroutines when the daemon dies.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	s := newSecretSite(t)
	s.start()
	holder, other := s.nc(), s.somebodyElse()
	waitFor(t, "three nodes are reached", func() bool { return reached(holder) == 3 })
	holder.expect("ADMIT all", "- node=a state=ready")
	holder.comes("- node=b state=ready")
	holder.comes("- node=c state=ready")
	holder.comes("OK n=3")
	for _, lock := range []string{"LOCK job ttl=20s note=mine", "LOCK readers mode=shared ttl=20s", "LOCK places slots=3 ttl=20s"} {
		lease := field(holder.expect(lock, "OK lock="), "lease")
		if len(lease) < 10 {
			t.Fatalf("%s: got the lease id %q", lock, lease)
		}
		s.secrets["the lease id of "+lock] = lease
	}
	s.secrets["the token on the nodes"], _, _ = strings.Cut(tell(t, s.servers[0], "GET", "redlock:job"), " ")
	s.askEverything(other)
	s.breakEverything(s.nc())
	s.lookEverywhere()
	s.daemon.signal(syscall.SIGQUIT) // prints the stacks of all goroutines, as a panic does
	if code := s.daemon.wait(); code != 2 {
		t.Errorf("SIGQUIT ended the daemon with %d, want 2: a Go program's stacks", code)
	}
	_, s.said["the log"] = s.daemon.rest()
	other.stdin.Close()
	other.wait()
	s.said["answers to somebody else"], _ = other.rest()
	s.search()
}

// somebodyElse returns a connection of another user that may use the socket, if that is possible.
func (s *secretSite) somebodyElse() *terminal {
	s.t.Helper()
	cmd := exec.Command("nc", "-U", s.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		if err := os.Chmod(s.dir, 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.Chmod(s.socket, 0o666); err != nil {
			s.t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = another(s.t)
	}
	return &terminal{startCommand(s.t, cmd)}
}

// another returns a user other than the daemon's.
func another(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("to speak as another user, root is needed")
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
}

// askEverything sends all verbs, valid and invalid, also with guessed leases.
func (s *secretSite) askEverything(n *terminal) {
	s.t.Helper()
	guess := strings.Repeat("A", len(s.secrets["the lease id of LOCK job ttl=20s note=mine"]))
	for _, line := range []string{
		"HELLO 1", "HELP", "STATUS", "LIST", "WHO job", "WHO readers", "WHO places", "CHECK lease=" + guess, "UNLOCK lease=" + guess, "EXTEND lease=" + guess + " ttl=5s", "CHECK job",
		"UNLOCK job", "LOCK job wait=0", "LOCK readers wait=0", "LOCK places slots=2 wait=0", "LOCK job wait=10ms", "RESUME lease=" + guess, "DISCONNECT", "LOCK", "LOCK \x01", "NONSENSE job", "FORCE job", "ADMIT all",
		"LOCK own ttl=5s", "UNLOCK own", "@t1 WHO job",
	} {
		n.send(line)
	}
	n.send("PING end=of=questions")
	n.send("HELLO 1")
	n.send("@last LIST")
	for last := ""; !strings.HasPrefix(last, "@last OK") && !strings.HasPrefix(last, "@last ERR"); {
		last = n.line()
	}
}

// breakEverything makes passwords wrong, files missing, and the config faulty.
func (s *secretSite) breakEverything(n *terminal) {
	s.t.Helper()
	s.saysOf(n, "d", "unknown command")
	writeFile(s.t, filepath.Join(s.dir, "b-password"), wrongPassword+"\n")
	tell(s.t, s.servers[1], "CLIENT", "KILL", "USER", "redlockd")
	waitFor(s.t, "node b is down because of WRONGPASS", func() bool { // its listener alone is a warning
		line := nodeLine(n, "b")
		return field(line, "state") == "down" && strings.Contains(line, "WRONGPASS")
	})
	writeFile(s.t, filepath.Join(s.dir, "b-password"), fromFile+"\n"+wrongPassword+"\n")
	s.saysOf(n, "b", "more than the one line of a password")
	key := readFile(s.t, s.client.key)
	writeFile(s.t, s.client.key, key[:len(key)/2])
	for _, id := range strings.Fields(s.idsOf("redlockd")) {
		tell(s.t, s.servers[2], "CLIENT", "KILL", "ID", id)
	}
	s.saysOf(n, "c", s.client.key)
	s.daemon.signal(syscall.SIGHUP)
	awaitLog(s.daemon, "config not reloaded")
	writeFile(s.t, s.client.key, key)
	writeFile(s.t, filepath.Join(s.dir, "b-password"), fromFile+"\n")
	s.daemon.signal(syscall.SIGHUP)
	awaitLog(s.daemon, "config reloaded")
	waitFor(s.t, "nodes b and c are ready", func() bool {
		return field(nodeLine(n, "b"), "state") == "ready" && field(nodeLine(n, "c"), "state") == "ready"
	})
}

// idsOf returns node c's connections with that name.
func (s *secretSite) idsOf(name string) (ids string) {
	s.t.Helper()
	for line := range strings.Lines(tell(s.t, s.servers[2], "CLIENT", "LIST")) {
		if field(line, "name") == name {
			ids += field(line, "id") + " "
		}
	}
	return ids
}

// lookEverywhere collects what other users of the host can see without a request.
func (s *secretSite) lookEverywhere() {
	s.t.Helper()
	pid := s.daemon.cmd.Process.Pid
	for _, file := range []string{"cmdline", "environ", "status", "limits"} {
		s.said["/proc/PID/"+file] = readFile(s.t, fmt.Sprintf("/proc/%d/%s", pid, file))
	}
	cores := ""
	for line := range strings.Lines(s.said["/proc/PID/limits"]) {
		if strings.HasPrefix(line, "Max core file size") {
			cores = strings.Join(strings.Fields(line), " ")
		}
	}
	if cores != "Max core file size 0 0 bytes" {
		s.t.Errorf("the daemon has %q, want no core files: they would have the passwords", cores)
	}
	s.said["metrics"] = scrape(s.t, s.metrics)
}

// scrape returns the metrics at that address.
func scrape(t *testing.T, address string) string {
	t.Helper()
	scraper := http.Client{Timeout: patience}
	response, err := scraper.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// search looks for each secret in all output.
func (s *secretSite) search() {
	s.t.Helper()
	for where, text := range s.said {
		if len(text) < 10 {
			s.t.Errorf("%s: only %q, want more to look through", where, text)
		}
		for what, secret := range s.secrets {
			if at := strings.Index(text, secret); at >= 0 {
				line := text[strings.LastIndexByte(text[:at], '\n')+1:]
				line, _, _ = strings.Cut(line, "\n")
				s.t.Errorf("%s has %s (%s): %.300s", where, what, secret, line)
			}
		}
	}
	for _, wanted := range []string{"WRONGPASS", "unknown command", "goroutine ", "[TRACE] request: verb=CHECK ", "[TRACE] attempt granted: lock=job "} { // output that the test must have provoked
		if !strings.Contains(s.said["the log"], wanted) {
			s.t.Errorf("the log has no %q: nothing was tested", wanted)
		}
	}
}
