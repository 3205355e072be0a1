package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestConfigBounds checks, for each kind of value, values on both sides of its bounds.
func TestConfigBounds(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	for what, c := range map[string]struct {
		check     check
		good, bad []string
	}{
		"name":       {checkName, []string{"a", "9._-", x(32)}, []string{"", x(33), ".a", "-a", "_a", "a b", "all"}},
		"key prefix": {checkKeyPrefix, []string{"", x(64), "redlock:", "redlockx"}, []string{x(65), "a b", "redlockd:", "redlockd:x", "redlockd"}},
		"host":       {checkHost, []string{x(253), "::1", "a_b"}, []string{"", x(254), "-a", ".a", "10.0.0.256", "a b"}},
		"username":   {checkUsername, []string{x(128)}, []string{"", x(129), "a b"}},
		"file":       {checkFileName, []string{"a b"}, []string{"", "a\x00b"}},
		"path":       {checkUnixPath, []string{"/" + x(106), "/a b"}, []string{"", "a", "/" + x(107), "/a/", "/a\nb"}},
		"mode":       {checkMode, []string{"600", "0777"}, []string{"", "9", "1777", "0460", "0060", "0o600"}},
		"account":    {checkAccount, []string{x(256)}, []string{"", x(257), "a b", "a\xff"}},
		"lock":       {checkLockPattern, []string{"a b", x(200), "**"}, []string{"", x(201), "***", "a\nb", "\xff"}},
		"listen":     {checkListenAddress, []string{"[::]:1", "a:65535"}, []string{"a", ":1", "a:0", "a:65536", "::1:80"}},
		"node":       {checkNodeAddress, []string{"a:1", "unix:/a"}, []string{"redis://a:1", "u:p@a:1", "unix:a", "unix:/" + x(107)}},
	} {
		for _, value := range c.good {
			if wanted := c.check(value); wanted != "" {
				t.Errorf("%s %q: refused: wanted %s", what, value, wanted)
			}
		}
		for _, value := range c.bad {
			if c.check(value) == "" {
				t.Errorf("%s %q: accepted", what, value)
			}
		}
	}
}

// A config with more than redlock.MaxNodes nodes is refused.
func TestTooManyNodes(t *testing.T) {
	mustLoad(t, nodesSource(63))
	_, err := Parse([]byte(nodesSource(64)), "x.hcl")
	if want := "x.hcl:1:1: quorum: wanted at most 63 nodes, found 64"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Nodes can be joining or leaving, but not both, and each list needs a node.
func TestChangeOfNodes(t *testing.T) {
	source := func(a, b string) string {
		return "quorum {\n  node \"a\" {\n    address = \"a:1\"\n    " + a + "\n  }\n  node \"b\" {\n    address = \"b:1\"\n    " + b + "\n  }\n}\n"
	}
	for _, c := range []struct{ a, b, want string }{
		{"", "joining = true", ""},
		{"leaving = true", "joining = true", ""},
		{"leaving = true", "", ""},
		{"leaving = false", "joining = false", ""},
		{"joining = true", "joining = true", "x.hcl:1:1: quorum: wanted at least one node that is not joining: the nodes that the other hosts use now; found none"},
		{"leaving = true", "leaving = true", "x.hcl:1:1: quorum: wanted at least one node that is not leaving: the nodes that remain; found none"},
		{"joining = true\n    leaving = true", "", `x.hcl:5:15: node "a".leaving: wanted joining or leaving, found both: a new node is joining, and a node that others replace is leaving`},
	} {
		cfg, err := Parse([]byte(source(c.a, c.b)), "x.hcl")
		switch {
		case err == nil && c.want == "":
			want := strings.Contains(c.a+c.b, "true")
			if got := cfg.Quorum.IsChanging(); got != want || cfg.Quorum.Nodes[0].Leaving != (c.a == "leaving = true") || cfg.Quorum.Nodes[1].Joining != (c.b == "joining = true") {
				t.Errorf("%q, %q: read as %+v", c.a, c.b, cfg.Quorum.Nodes)
			}
		case err == nil || err.Error() != c.want:
			t.Errorf("%q, %q: got %v, want %s", c.a, c.b, err, c.want)
		}
	}
}

// drain is a duration of at most a day.
func TestDrainIsBounded(t *testing.T) {
	for value, want := range map[string]string{
		`"0s"`: "", `"24h"`: "",
		`"25h"`:  `drain: wanted a duration from 0s to 24h, found "25h"`,
		`"-1s"`:  `drain: wanted a duration`,
		`"25"`:   `drain: wanted a duration`,
		`25`:     `drain: wanted a duration in quotes`,
		`"soon"`: `drain: wanted a duration`,
	} {
		_, err := loadSource(t, nodesSource(3)+"drain = "+value+"\n")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("drain = %s: got %v, want %q", value, err, want)
		}
	}
}

// The defaults of a LOCK are values that a LOCK may ask for. A value out of its range is one fault,
// not two.
func TestLeaseDefaultsAreBounded(t *testing.T) {
	const within = "a duration from 0s to "
	for lease, want := range map[string]string{
		`linger = "30s"`:     "",
		`linger = "30001ms"`: "7:18: lease.linger: wanted at most 30s, which is quorum.max_ttl, found 30.001s",
		`linger = "25h"`:     "7:18: lease.linger: wanted " + within + "24h, found \"25h\"",
		`retain = "0s"`:      `7:9: lease: wanted ttl, max_hold, linger; found the unknown attribute "retain"`,
		`max_hold = "0s"`:    "",
		`max_hold = "100ms"`: "",
		`max_hold = "99ms"`:  "7:20: lease.max_hold: wanted 0s for no bound, or at least 100ms, found 99ms",
		`max_hold = "8761h"`: "7:20: lease.max_hold: wanted " + within + "8760h, found \"8761h\"",
		`max_hold = "8760h"`: "",
		`ttl = "30s"`:        "",
		`ttl = "30001ms"`:    "7:15: lease.ttl: wanted at most 30s, which is quorum.max_ttl, found 30.001s",
		`ttl = "99ms"`:       "7:15: lease.ttl: wanted a duration from 100ms to 24h, found \"99ms\"",
	} {
		_, err := loadSource(t, nodesSource(3)+"# \nlease { "+lease+" }\n")
		got := ""
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), "redlockd.hcl:")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", lease, got, want)
		}
	}
}

// The smallest ttl that fits node_timeout is accepted, and a ttl 1 ms shorter is refused.
func TestSmallestTTLForNodeTimeout(t *testing.T) {
	for _, less := range []time.Duration{0, time.Millisecond} {
		ttl := minDefaultTTL(50*time.Millisecond) - less
		_, err := loadSource(t, fmt.Sprintf("%slease { ttl = %q }\n", nodesSource(3), formatDuration(ttl)))
		if (err == nil) != (less == 0) {
			t.Errorf("a ttl of %v: %v", ttl, err)
		}
	}
}

// The largest count and flags are accepted.
func TestConfigAcceptsLargestCountAndFlags(t *testing.T) {
	cfg := mustLoad(t, `limits { connections = 1000000000 }
quorum {
  node "a" {
    address = "a:1"
    durable = true
  }
  node "b" { address = "b:1" }
}`)
	if cfg.Limits.Connections != maxCount || !cfg.Quorum.Nodes[0].Durable || cfg.Quorum.Nodes[1].Durable {
		t.Errorf("got %+v, %+v", cfg.Limits, cfg.Quorum.Nodes)
	}
	if _, err := loadSource(t, nodesSource(3)+"limits { connections = 1000000001 }"); err == nil {
		t.Error("1,000,000,001 connections were accepted")
	}
	if d, wanted := parseDuration("24h", 0, 24*time.Hour); d != 24*time.Hour || wanted != "" {
		t.Errorf("got %v, %q", d, wanted)
	}
}

// A quorum is more than half of the nodes.
func TestQuorumNeeded(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 4: 3, 5: 3, 7: 4} {
		if got := (&Quorum{Nodes: make([]Node, n)}).Needed(); got != want {
			t.Errorf("quorum of %d nodes: %d, want %d", n, got, want)
		}
	}
}

// checkNesting does not count brackets and quotes that are closed.
func TestNestingIgnoresClosedBrackets(t *testing.T) {
	var users []string
	for i := range 2 * maxNesting {
		users = append(users, fmt.Sprintf("%q", fmt.Sprint(10_000+i)))
	}
	cfg := mustLoad(t, nodesSource(3)+"access {\n  rule \"many\" {\n    users = ["+strings.Join(users, ", ")+"]\n    locks = [\"**\"]\n    allow = [\"lock\"]\n  }\n}")
	if n := len(cfg.Access.Rules[0].UIDs); n != len(users) {
		t.Errorf("got %d users, want %d", n, len(users))
	}
}

// A file of maxFileSize bytes is accepted, and a file with one byte more is refused.
func TestConfigSize(t *testing.T) {
	source := nodesSource(3)
	for _, more := range []int{0, 1} {
		name := filepath.Join(t.TempDir(), "redlockd.hcl")
		if err := os.WriteFile(name, []byte(source+strings.Repeat("\n", maxFileSize-len(source)+more)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(name); (err == nil) != (more == 0) {
			t.Errorf("%d bytes: %v", maxFileSize+more, err)
		}
	}
}

// Warnings are in file order, not in the order of the checks.
func TestWarningsAreInFileOrder(t *testing.T) {
	cfg := mustLoad(t, "socket { group = \"no-such-group-here\" }\n"+nodesSource(2))
	places := make([]string, len(cfg.Warnings))
	for i, warning := range cfg.Warnings {
		places[i] = strings.SplitN(strings.TrimPrefix(warning, cfg.Path+":"), ":", 2)[0]
	}
	if !slices.Equal(places, []string{"1", "2"}) {
		t.Errorf("the warnings are for the lines %q: %q", places, cfg.Warnings)
	}
}

// quote does not show text where a password may be, also at the start of the value.
func TestConfigQuoteBounds(t *testing.T) {
	for value, want := range map[string]string{
		"hunter2@a":             `"…@a"`,
		"@a":                    `"…@a"`,
		"?password=hunter2":     `"?…"`,
		"u:h@x@a?b":             `"…@a?…"`,
		strings.Repeat("ü", 80): `"` + strings.Repeat("ü", 80) + `"`,
		strings.Repeat("ü", 81): `"` + strings.Repeat("ü", 80) + `…"`,
	} {
		if got := quote(value); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}

// A value with a fault is not compared with others, so it causes no second fault.
func TestFaultyValueIsNotCompared(t *testing.T) {
	for quorum, lease := range map[string]string{
		`max_ttl = "30"`:      `linger = "40s"`,
		`max_ttl = "40"`:      `ttl = "40s"`,
		`node_timeout = "0s"`: `ttl = "100ms"`,
	} {
		source := strings.Replace(nodesSource(3), "quorum {\n", "quorum {\n"+quorum+"\n", 1) + "lease { " + lease + " }\n"
		_, err := loadSource(t, source)
		if faults, is := errors.AsType[*Error](err); !is || len(faults.Faults) != 1 || faults.Faults[0].Line != 2 {
			t.Errorf("%s, %s: %v, want only the first fault", quorum, lease, err)
		}
	}
}
