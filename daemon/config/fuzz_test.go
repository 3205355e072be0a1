package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfig checks that no file makes the reader panic. Each fault of a bad file has a position, and
// the Config of a good file has what the daemon relies on.
func FuzzConfig(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/*/*.hcl")
	for _, name := range append(seeds, wholeConfig, packagedConfig) {
		source, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source []byte) {
		cfg, err := Parse(source, "redlockd.hcl")
		if err != nil {
			checkFaults(t, err)
			return
		}
		checkInvariants(t, cfg)
	})
}

func checkFaults(t *testing.T, err error) {
	var faulty *Error
	if !errors.As(err, &faulty) || len(faulty.Faults) == 0 {
		t.Fatalf("got %#v, want an Error with faults", err)
	}
	for _, fault := range faulty.Faults {
		if fault.File != "redlockd.hcl" || fault.Line < 1 || fault.Column < 1 || fault.Text == "" {
			t.Errorf("got the fault %+v, want a position and a text", fault)
		}
	}
}

func checkInvariants(t *testing.T, cfg *Config) {
	quorum, lease := cfg.Quorum, cfg.Lease
	if len(quorum.Nodes) == 0 || quorum.NodeTimeout <= 0 || lease.TTL < minTTL || lease.TTL > quorum.MaxTTL || quorum.MaxTTL > maxTTL {
		t.Errorf("got %+v, %+v", quorum, lease)
	}
	if lease.MaxHold < 0 || lease.Linger < 0 || cfg.Socket.Mode&^0o777 != 0 || cfg.Socket.Path == "" {
		t.Errorf("got %+v, %+v", lease, cfg.Socket)
	}
	names, addresses := map[string]bool{}, map[string]bool{}
	for _, node := range quorum.Nodes {
		if names[node.Name] || addresses[node.Address] || node.Name == "" || node.Address == "" {
			t.Errorf("node %+v: its name or address is empty or not unique", node)
		}
		names[node.Name], addresses[node.Address] = true, true
	}
}

// A source that would overflow the parser's stack, and so end the process, is refused before it is
// parsed. The deepest allowed nesting is parsed.
func TestConfigNesting(t *testing.T) {
	for _, part := range []string{"(", "[", "!", "a{\n", "\"${", "[\n!\n", "f(", "1?", "{a="} {
		source := "x = " + strings.Repeat(part, maxNesting+1)
		_, err := Parse([]byte(source), "redlockd.hcl")
		if err == nil || !strings.Contains(err.Error(), "open brackets") {
			t.Errorf("%q repeated: got %v, want a refusal of so many open brackets", part, err)
			continue
		}
		checkFaults(t, err)
	}
	closed := strings.Repeat("]", 2*maxNesting) + strings.Repeat("[", maxNesting+1) // unmatched closing brackets do not count
	if err := checkNesting([]byte(closed), "redlockd.hcl"); err == nil {
		t.Error("got no error if more brackets are closed before")
	}
	deep := "x = " + strings.Repeat("[", maxNesting-1) + strings.Repeat("]", maxNesting-1)
	if _, err := Parse([]byte(deep), "redlockd.hcl"); err == nil || !strings.Contains(err.Error(), `unknown attribute "x"`) {
		t.Errorf("got %v, want only x and the quorum refused", err)
	}
}
