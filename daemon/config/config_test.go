package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/logging"
)

// wholeConfig is the documented example with all blocks.
const wholeConfig = "testdata/whole.hcl"

func readTestFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// loadSource loads source from a file redlockd.hcl in a directory of its own.
func loadSource(t *testing.T, source string) (*Config, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "redlockd.hcl")
	if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(name)
}

func mustLoad(t *testing.T, source string) *Config {
	t.Helper()
	cfg, err := loadSource(t, source)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestWholeConfig(t *testing.T) {
	dir := credentialsForTest(t)
	t.Setenv("CREDENTIALS_DIRECTORY", dir)

	cfg := mustLoad(t, readTestFile(t, wholeConfig))
	cfg.Warnings = nil // one depends on whether this host has the group redlock
	want := &Config{
		Path: cfg.Path,
		Quorum: Quorum{
			KeyPrefix:   "redlock:",
			MaxTTL:      30 * time.Second,
			NodeTimeout: 50 * time.Millisecond,
			Nodes: []Node{
				{Name: "a", Address: "10.0.0.1:6379", Pos: cfg.Path + ":6"},
				{Name: "b", Address: "unix:/run/redis/b.sock", Pos: cfg.Path + ":7"},
				{
					Name:         "c",
					Address:      "10.0.0.3:6379",
					Database:     2,
					Username:     "redlockd",
					PasswordFile: filepath.Join(dir, "redis-password"),
					TLS: &TLS{
						CAFile:     filepath.Join(dir, "ca.pem"),
						CertFile:   filepath.Join(dir, "client.pem"),
						KeyFile:    filepath.Join(dir, "client.key"),
						ServerName: "redis-c",
					},
					Pos: cfg.Path + ":8",
				},
			},
		},
		Lease:  Lease{TTL: 10 * time.Second},
		Socket: Socket{Path: "/run/redlockd/redlockd.sock", Mode: 0o660, Group: "redlock"},
		Access: &Access{Rules: []Rule{
			{Name: "web", Users: []string{"www-data"}, Locks: []string{"web/*"}, Allow: []string{"lock", "inspect"}, UIDs: []int{33}},
		}},
		Limits: Limits{Connections: 10000, ConnectionsPerUser: 1000, LeasesPerUser: 10000, WaitersPerUser: 10000},
		Log:    Log{Level: hclog.Info, Format: logging.Text},

		Metrics: &Metrics{Address: "127.0.0.1:9852"},
	}
	want.Source = cfg.Source
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%+v\nwant\n%+v", cfg, want)
	}
}

func TestConfigEveryValue(t *testing.T) {
	cfg := mustLoad(t, `
quorum {
  key_prefix   = ""
  max_ttl      = "1h30m"
  node_timeout = "1ms"
  node "n-1.x_Y" { address = "[fd00::1]:6379" }
}
lease {
  ttl      = "100ms"
  max_hold = "8h"
  linger   = "250ms"
}
drain = "25s"
socket {
  path  = "/tmp/x.sock"
  mode  = "600"
  group = "4242"
}
limits {
  connections          = 1
  connections_per_user = 2
  leases_per_user      = 3
  waiters_per_user     = 4
  requests_per_second  = 5
}
log {
  level  = "debug"
  format = "json"
  grants = true
}
metrics {
  address = "[::1]:9852"
  page    = true
  names   = true
}
doctor {
  ignore = ["persistence", "fencing"]
}`)
	want := &Config{
		Path: cfg.Path,
		Quorum: Quorum{
			MaxTTL:      90 * time.Minute,
			NodeTimeout: time.Millisecond,
			Nodes:       []Node{{Name: "n-1.x_Y", Address: "[fd00::1]:6379", Pos: cfg.Path + ":6"}},
		},
		Lease:    Lease{TTL: 100 * time.Millisecond, MaxHold: 8 * time.Hour, Linger: 250 * time.Millisecond},
		Drain:    25 * time.Second,
		Socket:   Socket{Path: "/tmp/x.sock", Mode: 0o600, Group: "4242"},
		Limits:   Limits{1, 2, 3, 4, 5},
		Doctor:   Doctor{Ignore: []string{"persistence", "fencing"}},
		Log:      Log{Level: hclog.Debug, Format: logging.JSON, Grants: true},
		Metrics:  &Metrics{Address: "[::1]:9852", Page: true, Names: true},
		Warnings: []string{cfg.Path + ":2:1: quorum: 1 node: no failure is tolerated (three nodes tolerate one, five tolerate two)"},
	}
	want.Source = cfg.Source
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%+v\nwant\n%+v", cfg, want)
	}
}

func TestConfigDefaults(t *testing.T) {
	cfg := mustLoad(t, nodesSource(3))
	want := defaults()
	want.Path, want.Quorum.Nodes, want.Lease.TTL = cfg.Path, cfg.Quorum.Nodes, 10*time.Second
	want.Source = []byte(nodesSource(3))
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%+v\nwant\n%+v", cfg, want)
	}
	short := mustLoad(t, `quorum {
  max_ttl = "5s"
  node "a" { address = "a:1" }
}`)
	if got := short.Lease.TTL; got != 5*time.Second {
		t.Errorf("lease.ttl under a max_ttl of 5s: got %s, want 5s", got)
	}
}

// nodesSource returns a config of n nodes.
func nodesSource(n int) string {
	var b strings.Builder
	b.WriteString("quorum {\n")
	for i := range n {
		fmt.Fprintf(&b, "  node \"n%d\" { address = \"10.0.0.%d:6379\" }\n", i, i+1)
	}
	b.WriteString("}\n")
	return b.String()
}

func TestConfigWarnings(t *testing.T) {
	for _, c := range []struct {
		source string
		want   []string
	}{
		{nodesSource(3), nil},
		{nodesSource(15), nil},
		{nodesSource(1), []string{"1:1: quorum: 1 node: no failure is tolerated (three nodes tolerate one, five tolerate two)"}},
		{nodesSource(4), []string{"1:1: quorum: 4 nodes tolerate no more failures than 3 would"}},
		{nodesSource(16), []string{
			"1:1: quorum: 16 nodes tolerate no more failures than 15 would",
			"1:1: quorum: 16 nodes: every lock asks all of them; five or seven are usual",
		}},
		{nodesSource(3) + `socket { group = "no-such-group-here" }`, []string{
			`6:18: socket.group: this host has no group "no-such-group-here": redlockd will not start, unless systemd opens the socket; to create it: groupadd --system no-such-group-here`,
		}},
	} {
		cfg := mustLoad(t, c.source)
		var got []string
		for _, warning := range cfg.Warnings {
			got = append(got, strings.TrimPrefix(warning, cfg.Path+":"))
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %q, want %q for\n%s", got, c.want, c.source)
		}
	}
}

// A socket that redlockd could not create is a warning and not a fault: the daemon may start on
// another host, or later.
func TestConfigWarnsOfSocketPath(t *testing.T) {
	dir := t.TempDir()
	file, socket := filepath.Join(dir, "file"), filepath.Join(dir, "socket")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	const elsewhere = ": something other than a socket is at this path: move it away"
	for path, want := range map[string]string{
		dir + "/new":    "",
		socket:          "",
		dir:             "redlockd will not start until that is changed: " + dir + elsewhere,
		file:            "redlockd will not start until that is changed: " + file + elsewhere,
		file + "/s":     file + " is not a directory: redlockd will not start until that is changed",
		dir + "/no/s":   dir + "/no does not exist: redlockd will not start, unless somebody makes it first, as systemd does (RuntimeDirectory= of the service)",
		dir + "/no/x/s": dir + "/no/x does not exist: redlockd will not start, unless somebody makes it first, as systemd does (RuntimeDirectory= of the service)",
	} {
		cfg := mustLoad(t, nodesSource(3)+`socket { path = "`+path+`" }`)
		var wanted []string
		if want != "" {
			wanted = []string{cfg.Path + ":6:17: socket.path: " + want}
		}
		if !slices.Equal(cfg.Warnings, wanted) {
			t.Errorf("got %q, want %q", cfg.Warnings, wanted)
		}
	}
}

// TestLeastTTL checks both sides of the bound that the comment of minDefaultTTL derives.
func TestLeastTTL(t *testing.T) {
	for _, timeout := range []time.Duration{time.Millisecond, 21 * time.Millisecond, 50 * time.Millisecond, 5 * time.Second, time.Hour} {
		least := minDefaultTTL(timeout)
		fits := func(ttl time.Duration) bool {
			drift := ttl/100 + 2*time.Millisecond
			return 2*timeout <= ttl-drift-ttl/5-ttl/3
		}
		if !fits(least) || fits(least-2*time.Millisecond) {
			t.Errorf("leastTTL(%s): got %s; fits: %t, 2 ms less fits: %t", timeout, least, fits(least), fits(least-2*time.Millisecond))
		}
		if most := maxNodeTimeout(least); minDefaultTTL(most) > least || most > timeout {
			t.Errorf("mostTimeout(%s): got %s, which needs %s", least, most, minDefaultTTL(most))
		}
	}
}

func TestParseConfigDuration(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"0s": 0, "250ms": 250 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "1h30m": 90 * time.Minute, "2000us": 2 * time.Millisecond,
	} {
		if got, wanted := parseDuration(value, 0, 24*time.Hour); got != want || wanted != "" {
			t.Errorf("%s: got %s, %q; want %s", value, got, wanted, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 100 * time.Millisecond: "100ms", 10 * time.Second: "10s", time.Minute: "1m", 20 * time.Minute: "20m",
		90 * time.Second: "1m30s", time.Hour: "1h", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h", time.Hour + time.Second: "1h0m1s",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v: got %s, want %s", d, got, want)
		}
	}
}

func TestDevConfig(t *testing.T) {
	cfg := Dev()
	var names string
	for _, node := range cfg.Quorum.Nodes {
		names += node.Name
	}
	if names != "abcde" || cfg.Socket.Path != "./redlockd.sock" || cfg.Lease.TTL != 10*time.Second {
		t.Errorf("got nodes %q, socket %q, ttl %s; want abcde, ./redlockd.sock, 10s", names, cfg.Socket.Path, cfg.Lease.TTL)
	}
}

const packagedConfig = "../../packaging/redlockd.hcl"

func TestPackagedConfig(t *testing.T) {
	cfg, err := Load(packagedConfig)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(cfg.Quorum.Nodes); n != 5 {
		t.Errorf("got %d nodes, want 5", n)
	}
}

// In the packaged config the lines that are commented out are valid, too. Except for examples, they
// show the defaults.
func TestPackagedConfigShowsDefaults(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", credentialsForTest(t))
	source := readTestFile(t, packagedConfig)
	option := regexp.MustCompile(`(?m)^( *)# ((?:  )*(?:[a-z_]+ += .*|[a-z]+(?: "[a-z]+")? \{|\}))$`)
	all := option.ReplaceAllString(source, "$1$2")
	if n := len(option.FindAllString(source, -1)); n != 55 {
		t.Errorf("got %d lines that are commented out, want 55:\n%s", n, all)
	}

	got, want := mustLoad(t, all), mustLoad(t, source)
	last := &got.Quorum.Nodes[4]
	if last.Username != "redlockd" || last.PasswordFile == "" || last.TLS == nil || last.TLS.ServerName != "redis-e" {
		t.Errorf("got %+v for the node with a password and TLS", last)
	}
	last.Username, last.PasswordFile, last.TLS = "", "", nil
	if got.Access == nil || len(got.Access.Rules) != 2 || want.Access != nil {
		t.Errorf("got access %+v for the two rules, and %+v by default", got.Access, want.Access)
	}
	if got.Metrics == nil || *got.Metrics != (Metrics{Address: "127.0.0.1:9852"}) || want.Metrics != nil {
		t.Errorf("got metrics %+v for the example, and %+v by default", got.Metrics, want.Metrics)
	}
	got.Path, got.Warnings, got.Metrics = want.Path, want.Warnings, nil
	if changed, err := want.Changes(got, false); err != nil || len(changed) > 0 {
		t.Errorf("the defaults differ in %q, %v", changed, err)
	}
	if got.Limits != want.Limits || got.Log != want.Log {
		t.Errorf("got %+v %+v, want %+v %+v", got.Limits, got.Log, want.Limits, want.Log)
	}
}
