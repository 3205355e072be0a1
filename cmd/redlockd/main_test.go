package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon"
	"github.com/redlockd/redlockd/daemon/config"
)

const goodConfig = `quorum {
  node "a" { address = "10.0.0.1:6379" }
  node "b" { address = "10.0.0.2:6379" }
  node "c" { address = "10.0.0.3:6379" }
}
`

const faultyConfig = `quorum {
  max_ttl = 30
  nodes   = 3
}
`

func writeConfig(t *testing.T, source string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "redlockd.hcl")
	replaceConfig(t, name, source)
	return name
}

func replaceConfig(t *testing.T, name, source string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
}

type serveFunc = func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error

// fixture is a command that keeps its output and gets its signals from the test.
type fixture struct {
	*command
	out, err bytes.Buffer
	signals  chan os.Signal
}

func newFixture(t *testing.T, serve serveFunc) *fixture {
	f := &fixture{signals: make(chan os.Signal, 8)}
	if serve == nil {
		serve = func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error {
			t.Error("the daemon was started")
			return nil
		}
	}
	f.command = &command{stdout: &f.out, stderr: &f.err, signals: f.signals, config: defaultConfig, expected: []string{"."}, serve: serve}
	return f
}

func (f *fixture) check(t *testing.T, code, wantCode int, wantOut, wantErr string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("got exit code %d, want %d", code, wantCode)
	}
	if got := f.out.String(); !strings.Contains(got, wantOut) || wantOut == "" && got != "" {
		t.Errorf("stdout: got %q, want %q", got, wantOut)
	}
	if got := f.err.String(); !strings.Contains(got, wantErr) || wantErr == "" && got != "" {
		t.Errorf("stderr: got %q, want %q", got, wantErr)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args     string
		code     int
		out, err string
	}{
		{"-version", exitOK, "redlockd " + daemon.Version() + "\n", ""},
		{"-help", exitOK, "redlockd validate [FILE]", ""},
		{"validate -h", exitOK, "Usage:", ""},
		{"-nonsense", exitUsage, "", "-nonsense\nredlockd -help shows the usage\n"},
		{"-help", exitOK, "-log-level LEVEL\n", ""},
		{"serve", exitUsage, "", `unknown argument "serve"`},
		{"validate it more", exitUsage, "", `unknown argument "more"`},
		{"validate none.hcl", exitFailed, "", "none.hcl: no such file"},
		{"validate -config a.hcl b.hcl", exitUsage, "", "-config names the config file already: leave out b.hcl"},
		{"validate -as root", exitUsage, "", "-as USER needs -lock NAME, and -lock NAME needs -as USER"},
		{"validate -lock x", exitUsage, "", "-as USER needs -lock NAME, and -lock NAME needs -as USER"},
		{"validate -dev", exitUsage, "", "-dev"},
		{"-dev -config x.hcl", exitUsage, "", "-dev uses no config file"},
		{"-dev -socket=", exitUsage, "", "-socket: wanted a path"},
		{"-socket " + strings.Repeat("x", 108), exitUsage, "", "found 108 bytes"},
		{"-log-level loud", exitUsage, "", "wanted one of trace"},
		{"-config none.hcl", exitFailed, "", "none.hcl: no such file"},
		{"validate -config none.hcl", exitFailed, "", "none.hcl: no such file"},
	} {
		t.Run(c.args, func(t *testing.T) {
			f := newFixture(t, nil)
			f.check(t, f.run(strings.Fields(c.args)), c.code, c.out, c.err)
		})
	}
}

// Without a config, the error says how to name one, and that -dev needs none.
func TestNoConfig(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.hcl")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "no such file or directory: -config FILE reads another one; to try redlockd without a config, use -dev\n"},
		{[]string{"validate"}, "no such file or directory: redlockd validate FILE checks another one\n"},
		{[]string{"-config", none + "2"}, "no such file or directory\n"},
		{[]string{"validate", "-config", none + "2"}, "no such file or directory\n"},
	} {
		f := newFixture(t, nil)
		f.config = none
		f.check(t, f.run(c.args), exitFailed, "", c.want)
	}
}

func TestValidate(t *testing.T) {
	f := newFixture(t, nil)
	code := f.run([]string{"validate", writeConfig(t, goodConfig)})
	f.check(t, code, exitOK, "ok: 3 nodes, 2 needed for a lock, socket /run/redlockd/redlockd.sock\n", "")
}

func TestValidateWarns(t *testing.T) {
	f := newFixture(t, nil)
	code := f.run([]string{"validate", "-config", writeConfig(t, `quorum {
  node "a" { address = "a:1" }
  node "b" { address = "b:1" }
}`)})
	f.check(t, code, exitOK, "ok: 2 nodes", "redlockd.hcl:1:1: quorum: 2 nodes tolerate no more failures than 1 would\n")
}

// Without the package, the default socket's directory is missing, and nothing creates it at
// the start.
func TestValidateOnAMachineWithoutThePackage(t *testing.T) {
	for socket, want := range map[string]string{
		"": "warning: socket.path: /run/redlockd does not exist, and redlockd.service, which creates it, is not installed: redlockd will not start.",
		fmt.Sprintf("socket { path = %q }", filepath.Join(t.TempDir(), "s")): "",
	} {
		f := newFixture(t, nil)
		f.expected = []string{filepath.Join(t.TempDir(), "none")}
		f.check(t, f.run([]string{"validate", "-config", writeConfig(t, goodConfig+socket)}), exitOK, "ok: 3 nodes", want)
		if got := strings.HasSuffix(f.out.String(), "; the config is good, but this host is not ready for it: see the warnings\n"); got != (want != "") {
			t.Errorf("the last line is %q, after the warning %q", f.out.String(), want)
		}
	}
}

// A config with which redlockd never starts here is not "ok", whatever the service creates.
func TestValidateRefusesWhatNeverStarts(t *testing.T) {
	f := newFixture(t, nil)
	folder := t.TempDir()
	code := f.run([]string{"validate", "-config", writeConfig(t, goodConfig+fmt.Sprintf("socket { path = %q }", folder))})
	f.check(t, code, exitFailed, "", "redlockd does not start with this config on this host: see the warnings\n")
	if out := f.out.String(); out != "" {
		t.Errorf("stdout is %q", out)
	}
}

// validate prints one line for each right. The exit code depends on the right to the lock.
func TestValidateAs(t *testing.T) {
	config := writeConfig(t, goodConfig+`
access {
  rule "web" {
    users = ["4001"]
    locks = ["web/*"]
    allow = ["lock"]
  }
  rule "ops" {
    users = ["4002", "4001"]
    locks = ["**"]
    allow = ["admin"]
  }
  rule "comma" {
    users = ["4001"]
    locks = ["db,1"]
    allow = ["lock"]
  }
}`)
	for _, c := range []struct {
		as, lock string
		code     int
		out, err string
	}{
		{"4001", "web/a", exitOK, "lock     allowed  by rule \"web\"\ninspect  denied   by no access rule of 3\nadmin    allowed  by rule \"ops\"\n", ""},
		{"4001", "web/a/b", exitDenied, "lock     denied   by no access rule of 3\n", ""},
		{"4002", "web/a", exitDenied, "admin    allowed  by rule \"ops\"\n", ""},
		{"4001", "web/a,web/b", exitOK, "web/b: admin    allowed  by rule", ""},
		{"4001", "web/a,web/b", exitOK, "web/a: admin    allowed  by rule", ""},
		{"4001", "web/a,db", exitDenied, "db: lock     denied   by no access rule of 3\n", ""},
		{"4001", "web/a%2Cb/c", exitDenied, "lock     denied   by no access rule of 3\n", ""},
		{"4001", "db,web/a", exitDenied, "web/a: lock     allowed  by rule \"web\"\n", ""},
		{"4001", "db%2C1", exitOK, "lock     allowed  by rule \"comma\"\n", ""},
		{"4001", "web/a,", exitUsage, "", "a name is empty"},
		{"no-such-user", "web/a", exitUsage, "", `no user "no-such-user"`},
		{"4001", "redlockd:x", exitUsage, "", "reserved"},
		{"4001", "", exitUsage, "", "redlockd: "},
	} {
		f := newFixture(t, nil)
		f.check(t, f.run([]string{"validate", "-config", config, "-as", c.as, "-lock", c.lock}), c.code, c.out, c.err)
	}
	f := newFixture(t, nil)
	f.check(t, f.run([]string{"validate", "-config", writeConfig(t, goodConfig), "-as", "4001", "-lock", "x"}), exitOK, "without access rules", "")
}

// validate and the start print every fault, one on each line.
func TestFaultyConfig(t *testing.T) {
	name := writeConfig(t, faultyConfig)
	for _, args := range [][]string{{"validate", "-config", name}, {"-config", name}} {
		f := newFixture(t, nil)
		f.check(t, f.run(args), exitFailed, "", name+":2:13: quorum.max_ttl: ")
		if got := strings.Count(f.err.String(), name+":"); got != 3 {
			t.Errorf("%q: got %d faults, want 3 (max_ttl, nodes, no node):\n%s", args, got, f.err.String())
		}
	}
}

func TestFlagsOverrideConfig(t *testing.T) {
	var got *config.Config
	f := newFixture(t, func(_ context.Context, cfg *config.Config, _ hclog.Logger, o daemon.RunOptions) error {
		got = cfg
		if o.Dev || o.Reload == nil {
			t.Errorf("got options %+v, want no Dev and a Reload", o)
		}
		if o.Ready != nil {
			t.Error("a daemon with nodes of a config prints the greeting of -dev")
		}
		return nil
	})
	code := f.run([]string{"-config", writeConfig(t, goodConfig), "-socket", "x.sock", "-log-level", "error"})
	f.check(t, code, exitOK, "", "")
	if got.Socket.Path != "x.sock" || got.Log.Level != hclog.Error || len(got.Quorum.Nodes) != 3 {
		t.Errorf("got socket %q, level %v, %d nodes; want x.sock, error, 3", got.Socket.Path, got.Log.Level, len(got.Quorum.Nodes))
	}
}

// The path of the socket may be as long as the kernel allows.
func TestLongestSocket(t *testing.T) {
	longest := strings.Repeat("x", 107)
	f := newFixture(t, func(_ context.Context, cfg *config.Config, _ hclog.Logger, _ daemon.RunOptions) error {
		if cfg.Socket.Path != longest {
			t.Errorf("got socket %q, want %q", cfg.Socket.Path, longest)
		}
		return nil
	})
	f.check(t, f.run([]string{"-dev", "-socket", longest}), exitOK, "", "")
}

func TestServeFails(t *testing.T) {
	f := newFixture(t, func(context.Context, *config.Config, hclog.Logger, daemon.RunOptions) error {
		return errors.New("socket x: in use")
	})
	f.check(t, f.run([]string{"-dev"}), exitFailed, "", "socket x: in use")
}
