package doctor

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/cmd/redlock/internal/socket"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/ipc"
)

// healthy returns a snapshot without faults, to which change was applied.
func healthy(change func(*snapshot)) *snapshot {
	status := *cmdtest.HealthyStatus
	status.Nodes = slices.Clone(status.Nodes)
	status.Counts = map[string]int64{"grants": 7}
	p := &snapshot{
		version:  "devel",
		answered: time.Millisecond,
		hello:    client.Hello{Version: "devel", TTL: 10 * time.Second, MaxTTL: 30 * time.Second, NodeTimeout: 50 * time.Millisecond},
		status:   &status,
	}
	change(p)
	return p
}

const lostByRestart = "bad table: a restart of redlockd would lose leases and waiters: "

// unnoted returns a change that sets the reason why the daemon's state file is not written.
func unnoted(why string) func(*snapshot) {
	return func(p *snapshot) { p.status.Unnoted, p.status.Table = true, why }
}

// The fix says to make room only if that can help.
func TestRoomForTable(t *testing.T) {
	for why, want := range map[string]bool{"unwritten": true, "unopened": true, "removed": false, "boot": false} {
		f := healthy(unnoted(why)).checkTable()[0]
		if got := strings.Contains(f.fix, "(df)"); got != want {
			t.Errorf("%q: found is %+v, want that it takes room: %v", why, f, want)
		}
	}
}

// The fix does not say to wait if time does not end the quarantine.
func TestQuarantineFix(t *testing.T) {
	for left, want := range map[time.Duration]string{time.Second: "wait (", 0: "time does not end it: "} {
		if got := nodeFix(client.Node{State: "quarantined", Left: left}); !strings.HasPrefix(got, want) || !strings.Contains(got, "redlock admit") {
			t.Errorf("with %v left: %q, want %q", left, got, want)
		}
	}
}

// redlock admit is offered only if no node votes: then all of them may be new. Otherwise the nodes in
// quarantine have lost data, and may have forgotten locks that are held.
func TestAdmitIsOfferedForNewNodesOnly(t *testing.T) {
	for others, want := range map[string]string{
		"quarantined": "wait; or, only if all nodes are new and no host holds a lock: redlock admit all",
		"ready":       "wait; see the findings about the nodes",
		"down":        "wait; see the findings about the nodes",
	} {
		p := healthy(func(p *snapshot) {
			p.status.Spare, p.status.Left, p.status.Text = -1, 12*time.Second, "no quorum: …; end it: ADMIT all, or in a shell redlock admit all"
			for i := range p.status.Nodes {
				p.status.Nodes[i].State, p.status.Nodes[i].Left = "quarantined", 12*time.Second
			}
			p.status.Nodes[0].State = others
		})
		if f := p.checkQuorum()[0]; f.fix != want {
			t.Errorf("with a node that is %s: the fix is %q, want %q", others, f.fix, want)
		}
		p.status.Text = "no quorum: …; do not end it earlier (ADMIT) while any host may hold a lock"
		if f := p.checkQuorum()[0]; f.fix != "wait; see the findings about the nodes" {
			t.Errorf("with nodes that are not new: the fix is %q", f.fix)
		}
	}
}

// While the quarantine has time left, the fix says neither that time ends it nor that the operator
// should end it now.
func TestQuarantineThatNeedsOthers(t *testing.T) {
	p := healthy(func(p *snapshot) {
		b := &p.status.Nodes[1]
		p.status.Spare, p.status.Left = -1, 12*time.Second
		b.State, b.Left = "quarantined", 12*time.Second
		b.Reason = "it is new; after that, its fencing counters are to be copied from 2 other nodes that may vote, and there are 1: bring those up"
	})
	if f := p.checkQuorum()[0]; strings.Contains(f.text, "12s") || strings.Contains(f.fix, "wait") {
		t.Errorf("found is %+v, want nothing of waiting", f)
	}
	fix := nodeFix(p.status.Nodes[1])
	if !strings.HasPrefix(fix, "time does not end it: ") || !strings.HasSuffix(fix, "redlock admit and its name, but only after its quarantine has passed") {
		t.Errorf("fix %q", fix)
	}
}

// Each change causes exactly the wanted findings. All other findings are ok.
func TestFindings(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*snapshot)
		want   []string // "result check: beginning of the text"
	}{
		"nothing": {func(*snapshot) {}, nil},
		"slow daemon": {func(p *snapshot) { p.answered = time.Second },
			[]string{"warning daemon: redlockd answers in 1s"}},
		"no quorum": {func(p *snapshot) { p.status.Spare = -1 },
			[]string{"bad quorum: 1 of 3 nodes are ready, and 2 are needed: no lock can be taken"}},
		"quarantine": {func(p *snapshot) {
			p.status.Spare, p.status.Left = -1, 12*time.Second
			p.status.Nodes[1].State, p.status.Nodes[1].Left, p.status.Nodes[1].Reason = "quarantined", 12*time.Second, "restarted"
		}, []string{"bad quorum: 1 of 3 nodes are ready, and 2 are needed: no lock can be taken for 12s,", "warning node: b: quarantined: restarted"}},
		"quarantine without an end": {func(p *snapshot) {
			p.status.Spare, p.status.Nodes[1].State, p.status.Nodes[1].Reason = -1, "quarantined", "its quarantine is over, but"
			p.status.Nodes[2].State, p.status.Nodes[2].Reason = "down", "connection refused"
		}, []string{"bad quorum: 1 of 3 nodes are ready, and 2 are needed: no lock can be taken", "warning node: b: quarantined: its quarantine is over, but", "warning node: c: down"}},
		"one down": {func(p *snapshot) {
			p.status.Spare, p.status.Nodes[2].State, p.status.Nodes[2].Reason = 0, "down", "connection refused"
		},
			[]string{"warning quorum: 2 of 3 nodes are ready, and 2 are needed: no further node may fail", "warning node: c: down: connection refused"}},
		"no persistence": {func(p *snapshot) {
			p.status.Nodes[0].Volatile, p.status.Nodes[2].Volatile = true, true
		}, nil},
		"one node": {func(p *snapshot) { p.status.Nodes, p.status.Spare, p.status.Quorum = p.status.Nodes[:1], 0, 1 },
			[]string{"warning node-count: there is one node"}},
		"even": {func(p *snapshot) { p.status.Nodes, p.status.Spare = p.status.Nodes[:2], 0 },
			[]string{"warning node-count: 2 nodes tolerate no more failures than 1"}},
		"two on one host": {func(p *snapshot) { p.status.Nodes[1].Address = "10.0.0.1:6380" },
			[]string{"warning same-host: a, b are all on 10.0.0.1: when it fails, no lock can be taken"}},
		"two of five on one host": {func(p *snapshot) {
			p.status.Quorum, p.status.Spare = 3, 2
			p.status.Nodes = append(p.status.Nodes, client.Node{Name: "d", Address: "d:1", State: "ready"}, client.Node{Name: "e", Address: "d:2", State: "ready"})
		}, []string{"warning same-host: d, e are all on d and fail together"}},
		"on this host": {func(p *snapshot) {
			p.status.Nodes[0].Address, p.status.Nodes[1].Address, p.status.Nodes[2].Address = "unix:/run/a.sock", "127.0.0.1:1", "localhost:2"
		}, []string{"warning same-host: a, b, c can be reached only from this host"}},
		"no host": {func(p *snapshot) { p.status.Nodes[1].Address = ":6379" },
			[]string{"warning same-host: b can be reached only from this host"}},
		"-dev": {func(p *snapshot) {
			for i := range p.status.Nodes {
				p.status.Nodes[i].Address, p.status.Nodes[i].Wakeups = "embedded", "polling"
			}
		}, []string{"warning same-host: this is redlockd -dev"}},
		"slow node": {func(p *snapshot) { p.status.Nodes[1].RTT = 26 * time.Millisecond },
			[]string{"warning latency: b took 26ms to answer, and after 50ms (node_timeout) its vote does not count"}},
		"slow disk": {func(p *snapshot) { p.status.Nodes[1].Write = 26 * time.Millisecond },
			[]string{"warning latency: b took 26ms to write, and after 50ms (node_timeout) its vote does not count; reads took 1ms"}},
		"half of its time": {func(p *snapshot) { p.status.Nodes[1].RTT = 25 * time.Millisecond }, nil},
		"polling": {func(p *snapshot) { p.status.Nodes[0].Wakeups, p.status.Nodes[2].Wakeups = "polling", "polling" },
			[]string{"warning wake-ups: a, c: it does not call waiters"}},
		"another max_ttl": {func(p *snapshot) { p.status.MaxTTL = time.Minute },
			[]string{"warning max-ttl: max_ttl is 30s here, and 1m0s on another host"}},
		"short leases": {func(p *snapshot) { p.hello.TTL = 449 * time.Millisecond },
			[]string{"warning lease-time: the default ttl is 449ms"}},
		"config not reloaded": {func(p *snapshot) { p.status.Unreloaded = true },
			[]string{"warning daemon: redlockd did not reload its new config"}},
		"no room for the table": {unnoted("unwritten"), []string{lostByRestart + "its state file, beside its socket, cannot be written"}},
		"table removed":         {unnoted("removed"), []string{lostByRestart + "its state file, beside its socket, was removed"}},
		"table not begun":       {unnoted("unopened"), []string{lostByRestart + "at its start its state file"}},
		"no /proc":              {unnoted("boot"), []string{lostByRestart + "it cannot read which boot this is"}},
		"one jump":              {func(p *snapshot) { p.status.Counts["clock_jumps"] = 1 }, []string{"warning clock-jumps: clocks jumped once, of nodes"}},
		"one node, and that is down": {func(p *snapshot) { p.status.Nodes, p.status.Spare, p.status.Quorum = p.status.Nodes[:1], -1, 1 },
			[]string{"bad quorum: the only node is not ready: no lock can be taken", "warning node-count: there is one node"}},
		"long enough leases": {func(p *snapshot) { p.hello.TTL = 450 * time.Millisecond }, nil},
		"clock jumps":        {func(p *snapshot) { p.status.Counts["clock_jumps"] = 2 }, []string{"warning clock-jumps: clocks jumped 2 times"}},
		"withdrawals":        {func(p *snapshot) { p.status.Counts["withdrawals"] = 1 }, []string{"warning withdrawals: a node that was running lost its vote once, because"}},
		"counters":           {func(p *snapshot) { p.status.Counts["counter_losses"] = 1 }, []string{"warning fencing: a quorum of nodes began without fencing counters once: unless"}},
	} {
		var got []Finding
		for _, f := range healthy(test.change).findings() {
			if f.result != OK {
				got = append(got, f)
			}
		}
		compareFindings(t, what, got, test.want)
	}
}

// compareFindings compares got with want. Each finding must also have a fix, or a node's own text
// that says what to do.
func compareFindings(t *testing.T, what string, got []Finding, want []string) {
	t.Helper()
	matches := func(f Finding, want string) bool {
		return strings.HasPrefix(f.result.String()+" "+f.check+": "+f.text, want)
	}
	if !slices.EqualFunc(got, want, matches) {
		t.Errorf("%s: found %+v, want %q", what, got, want)
	}
	for _, f := range got {
		if f.fix == "" && (f.check != "node" || !strings.Contains(f.text, "ready: ")) {
			t.Errorf("%s: %q has no fix", what, f.text)
		}
	}
}

func TestVersionsDiffer(t *testing.T) {
	for daemon, want := range map[string]Result{"1.2": OK, "1.1": Warning, "devel-abc": OK} {
		p := &snapshot{version: "1.2", hello: client.Hello{Version: daemon}}
		if got := p.checkVersion()[0]; got.result != want {
			t.Errorf("redlockd %s: %v, want %v", daemon, got, want)
		}
	}
	if got := (&snapshot{version: "devel-abc", hello: client.Hello{Version: "1.1"}}).checkVersion()[0]; got.result != OK {
		t.Errorf("redlock %s beside redlockd 1.1: %v, want ok", "devel-abc", got)
	}
}

// The fix depends on the fault. Without a quarantine, waiting does not help.
func TestFixes(t *testing.T) {
	quorum := func(left time.Duration) Finding {
		return healthy(func(p *snapshot) { p.status.Spare, p.status.Left = -1, left }).checkQuorum()[0]
	}
	at := func(address string) string {
		return healthy(func(p *snapshot) { p.status.Nodes[0].Address = address }).checkSameHost()[0].fix
	}
	is := func(state, reason string) string { return nodeFix(client.Node{State: state, Reason: reason}) }
	const rights = "give the user that redlockd logs in as the rights in NODES.md"
	for _, test := range []struct{ got, want string }{
		{is("down", "connection refused"), "start Redis there"},
		{is("down", "silent for 5s"), "it is reachable but does not answer in time: find out why"},
		{is("down", "answers after 83ms, but node_timeout is 50ms: raise node_timeout to at least 250ms on all hosts, or use nodes that are nearer"), ""},
		{is("down", "no answer to a connection in time: its host is down or hangs, or a firewall drops the packets"), "start its host, or let connections from this host through the firewall"},
		{is("down", "tls: failed to verify certificate: x509: certificate signed by unknown authority"), "ca_file of its tls block"},
		{is("down", "tls: failed to verify certificate: x509: certificate is valid for redis-a, not redis-c"), "give the node a certificate for the name in its address"},
		{is("down", "tls: failed to verify certificate: x509: cannot validate certificate for 10.0.0.1 because it doesn't contain any IP SANs"), "give the node a certificate with this IP address"},
		{is("down", "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time …"), "renew the certificate of the node"},
		{is("down", "remote error: tls: certificate required"), "the node wants a certificate of redlockd"},
		{is("down", "remote error: tls: expired certificate"), "renew the certificate of redlockd"},
		{is("down", "remote error: tls: unknown certificate authority"), "tls-ca-cert-file in the node's redis.conf"},
		{is("down", "no answer to the TLS handshake in time: it hangs, or does not speak TLS there (tls-port in its redis.conf)"), "let its address lead to the port for TLS"},
		{is("down", "a file of its tls block cannot be used: open ca.pem: no such file"), "correct the files of its tls block"},
		{is("down", "no answer to the login in time"), "it is reachable but does not answer in time: find out why"},
		{is("quarantined", "it was restarted"), "time does not end it"},
		{nodeFix(client.Node{State: "quarantined", Left: time.Second}), "wait (redlock status shows how long); redlock admit is unsafe"},
		{is("down", "the name in its address cannot be resolved: correct it, or the DNS of this host"), ""},
		{is("down", "connection refused: start Redis there, or correct its address and port"), ""},
		{is("ready", "it does not call waiters: NOPERM; fix: ACL SETUSER with +publish"), ""},
		{is("connecting", ""), "wait; if it stays so, check"},
		{is("down", "NOPERM no permissions"), rights},
		{is("down", "WRONGPASS invalid username-password pair"), rights},
		{is("down", "NOAUTH Authentication required."), rights},
		{at("embedded"), "use a config with real nodes"},
		{at("localhost:6379"), "addresses that every host can use"},
		{at("10.0.0.2:6380"), "put each node on a machine of its own"},
	} {
		if !strings.HasPrefix(test.got, test.want) {
			t.Errorf("the fix is %q, want %q", test.got, test.want)
		}
	}
	for want, f := range map[string]Finding{
		"see the findings about the nodes": quorum(0),
		"wait; see the findings about":     quorum(time.Second),
		"restart it (systemctl":            unreachable(context.DeadlineExceeded),
		"end some connections":             unreachable(client.ErrLimit),
		"a rule of the config":             unreachable(client.ErrDenied),
		"see the finding about the socket": unreachable(fs.ErrPermission),
		"start it (systemctl start":        unreachable(client.ErrUnavailable),
	} {
		if f.result != Bad || !strings.Contains(f.fix, want) {
			t.Errorf("found %+v, want the fix %q", f, want)
		}
	}
}

// If there is no fault, each check says so, except the checks for rare faults.
func TestAllChecksSpeak(t *testing.T) {
	well := func(change func(*snapshot)) (said []string) {
		for _, f := range healthy(change).findings() {
			if f.result == OK {
				said = append(said, f.check+": "+f.text)
			}
		}
		return said
	}
	const since = " since redlockd was started"
	want := []string{
		"daemon: redlockd answers in 1ms", "version: redlockd is devel",
		"quorum: 3 of 3 nodes are ready, and 2 are needed: 1 more may fail", "node-count: 3 nodes tolerate the failure of 1", "node: a, b, c: ready",
		"same-host: each node has a host of its own, by its address", "latency: nodes take up to 2ms of 50ms (node_timeout) to answer",
		"max-ttl: max_ttl is 30s", "lease-time: the default ttl is 10s", "clock-jumps: no clock has jumped" + since, "withdrawals: no running node has lost its vote" + since, "fencing: no fencing counters were lost" + since,
	}
	if got := well(func(*snapshot) {}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for want, change := range map[string]func(*snapshot){
		"quorum: the only node is ready: none may fail": func(p *snapshot) {
			p.status.Nodes, p.status.Quorum, p.status.Spare = p.status.Nodes[:1], 1, 0
		},
		"quorum: 2 of 2 nodes are ready, and 2 are needed: none may fail": func(p *snapshot) {
			p.status.Nodes, p.status.Spare = p.status.Nodes[:2], 0
		},
	} {
		if got := well(change); !slices.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

func TestCheckSocket(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "s")
	look := func(what string, want ...string) {
		t.Helper()
		findings := checkSocket(path)
		if Worst(findings) == OK {
			if len(findings) != 1 || !strings.HasPrefix(findings[0].text, path+" is -rw-rw----, user ") {
				t.Errorf("%s: found %+v, want how it is", what, findings)
			}
			findings = nil
		}
		compareFindings(t, what, findings, want)
	}
	look("nothing there", "bad socket: there is no socket "+path)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look("a file", "bad socket: "+path+" is a regular file, not a socket")
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	rights := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	rights(path, 0o660)
	look("as it should be")
	rights(path, 0o666)
	look("for all", "warning socket: "+path+" is -rw-rw-rw-: every user")
	rights(path, 0o660)
	rights(folder, 0o777)
	look("in a folder for all", "bad socket: "+folder+" is -rwxrwxrwx: any user may replace redlockd's socket")
	rights(folder, 0o777|os.ModeSticky)
	look("in a sticky folder")
}

// If a daemon listens on a socket whose file was removed, starting the daemon does nothing, because
// it already runs.
func TestSocketRemoved(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the listening sockets")
	}
	path := filepath.Join(t.TempDir(), "s o")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accepted, err := l.Accept() // its address has the path too
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ what, path, text, fix string }{
		{"removed", path, "the socket " + path + " was removed while a process listens there", "if systemd made it: systemctl restart redlockd.socket redlockd.service"},
		{"another's path has its end", path[1:], "there is no socket", "start redlockd (systemctl start redlockd; to try it out: redlockd -dev)"},
	} {
		if got := checkSocket(test.path)[0]; got.result != Bad || !strings.HasPrefix(got.text, test.text) || !strings.HasPrefix(got.fix, test.fix) {
			t.Errorf("%s: found %+v, want %q, %q", test.what, got, test.text, test.fix)
		}
	}
	l.Close()
	if got := checkSocket(path)[0]; !strings.HasPrefix(got.text, "there is no socket") {
		t.Errorf("without a listener: found %+v", got)
	}
}

// The round trip of a node that is down says nothing about its latency, and is not "ok".
func TestLatencyOfNodesThatAreDown(t *testing.T) {
	p := snapshot{hello: client.Hello{NodeTimeout: 50 * time.Millisecond}, status: &client.Status{Nodes: []client.Node{
		{Name: "a", State: "down", RTT: 87 * time.Millisecond}, {Name: "b", State: "down", RTT: 3 * time.Millisecond},
	}}}
	if got := p.checkLatency(); len(got) > 0 {
		t.Errorf("all nodes are down: got %+v, want nothing", got)
	}
	p.status.Nodes[1].State = "ready"
	if got := p.checkLatency(); len(got) != 1 || got[0].result != OK || !strings.Contains(got[0].text, "up to 3ms of 50ms") {
		t.Errorf("one node is ready: got %+v, want its latency alone", got)
	}
}

// A socket that accepts and does not answer may belong to systemd. If a config fault keeps the
// daemon from starting, systemd restarts it repeatedly, and another restart does not help.
func TestDoctorUnanswered(t *testing.T) {
	f := unreachable(exit.FromClient(socket.ExplainTimeout(context.DeadlineExceeded)))
	for _, command := range []string{"systemctl status redlockd", "redlockd validate"} {
		if !strings.Contains(f.text, command) || !strings.Contains(f.fix, command) {
			t.Errorf("found is %+v, want %s in both", f, command)
		}
	}
}

// Only the check of the socket gives advice about a socket that the user may not open.
func TestUnansweredWithoutPermission(t *testing.T) {
	f := exit.FromClient(exit.Reword(fmt.Errorf("%w: %w", client.ErrDenied, fs.ErrPermission), "this user may not open it"))
	if got := unreachable(f); got.fix != "see the finding about the socket" {
		t.Errorf("findings %+v, want no second advice", got)
	}
}

func TestFindingsThatEndEarly(t *testing.T) {
	cmdtest.FailsWithoutRoom(t, "doctor", func(out io.Writer) error { return Print(out, []Finding{{}, {}}, false) })
	cmdtest.FailsWithoutRoom(t, "as JSON", func(out io.Writer) error { return Print(out, nil, true) })
}

// Missing persistence is one finding, and no warning: the README starts such nodes. They are ready.
func TestPersistenceIsNoWarning(t *testing.T) {
	p := healthy(func(p *snapshot) {
		for i := range p.status.Nodes {
			p.status.Nodes[i].Volatile = true
		}
	})
	if f := p.checkPersistence(); len(f) != 1 || f[0].result != OK || !strings.HasPrefix(f[0].text, "a, b, c: no persistence: a restart costs a quarantine") {
		t.Errorf("found %+v, want one ok about a, b, c", f)
	}
	if nodes := p.checkNodes(); len(nodes) != 1 || nodes[0].result != OK {
		t.Errorf("the nodes are %+v, want ok", nodes)
	}
}

// The config of redlockd and redlock doctor know the same checks.
func TestConfigKnowsTheChecks(t *testing.T) {
	if !slices.Equal(config.DoctorChecks, Checks) {
		t.Errorf("doctor.ignore can be %q, and the checks are %q", config.DoctorChecks, Checks)
	}
}

// redlock doctor ignores the checks that the config ignores. The daemon reports them in STATUS.
func TestConfigIgnores(t *testing.T) {
	f := cmdtest.StartFake(t, cmdtest.Replies{
		ipc.VerbHello:  cmdtest.Reply("OK protocol=1 version=devel ttl=10000 min_ttl=100 max_ttl=30000 node_timeout=50"),
		ipc.VerbStatus: cmdtest.Reply("- node=a address=10.0.0.1:6379 state=ready rtt=40", "OK n=1 nodes=1 quorum=1 spare=0 max_ttl=30000 doctor_ignore=latency,node-count : ok"),
	})
	t.Setenv(cmdtest.SocketVariable, f.Socket)
	findings, ignored := Examine(t.Context(), "devel")
	Ignore(findings, ignored)
	results := map[string]Result{}
	for _, f := range findings {
		results[f.check] = f.result
	}
	if results["latency"] != Ignored || results["node-count"] != Ignored {
		t.Errorf("found %+v, want that latency and node-count are ignored", findings)
	}
}

// An ignored warning does not change the exit code. An ignored bad finding does.
func TestIgnore(t *testing.T) {
	findings := []Finding{{check: "fencing", result: Warning}, {check: "quorum", result: Bad}, {check: "clock", result: Warning}, {check: "node", result: OK}}
	Ignore(findings, []string{"fencing", "quorum", "node"})
	for i, want := range []Result{Ignored, Bad, Warning, OK} {
		if got := findings[i].result; got != want {
			t.Errorf("%s is %v, want %v", findings[i].check, got, want)
		}
	}
	if got := Ignored.String(); got != "ignored" {
		t.Errorf("it is shown as %q", got)
	}
	Ignore(findings[:1], nil)
	if got := Worst(findings[:1]); got > OK {
		t.Errorf("with ignored findings alone the worst is %v", got)
	}
}

// All checks can be ignored by the names that their findings have.
func TestChecksAreNamed(t *testing.T) {
	for _, f := range healthy(func(*snapshot) {}).findings() {
		if !slices.Contains(Checks, f.check) {
			t.Errorf("the check %q is not in the list", f.check)
		}
	}
}

// A change of the nodes that is not finished is a warning. Nodes that are leaving do not count as nodes.
func TestChangeOfNodes(t *testing.T) {
	if got := healthy(func(*snapshot) {}).checkChange(); got != nil {
		t.Errorf("without a change: %+v", got)
	}
	p := healthy(func(p *snapshot) {
		p.status.Change = "committed"
		p.status.Nodes = []client.Node{{Name: "a", State: "ready", List: "leaving"}, {Name: "b", State: "ready"}, {Name: "c", State: "down", List: "joining"}, {Name: "d", State: "ready"}}
	})
	if got := p.checkChange(); len(got) != 1 || got[0].result != Warning || !strings.Contains(got[0].text, "(committed)") || !strings.Contains(got[0].fix, "redlock nodes") {
		t.Errorf("found %+v", got)
	}
	if got := p.checkNodeCount()[0]; got.result != OK || !strings.HasPrefix(got.text, "3 nodes tolerate") {
		t.Errorf("found %+v", got)
	}
	if got := p.checkQuorum()[0]; !strings.Contains(got.text, "3 of both lists are ready") {
		t.Errorf("found %+v", got)
	}
}
