package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestLogText(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, hclog.Info, Text)
	log.Debug("not shown")
	log.Info("lease lost", "lock", "web/1", "reason", "quorum")
	if got, want := out.String(), "[INFO]  lease lost: lock=web/1 reason=quorum\n"; !strings.HasSuffix(got, want) || strings.Contains(got, "not shown") {
		t.Errorf("got %q, want only ...%q", got, want)
	}
}

func TestLogJSON(t *testing.T) {
	var out bytes.Buffer
	New(&out, hclog.Info, JSON).Warn("lease lost", "lock", "web/1")
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if got["@level"] != "warn" || got["@message"] != "lease lost" || got["lock"] != "web/1" {
		t.Errorf("got %v", got)
	}
}

// JSON shows durations with their unit: see textArgs.
func TestLogJSONValues(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, hclog.Info, JSON).With("after", 1500*time.Millisecond)
	log.Info("stopping", "left", 3*time.Second, "signal", syscall.SIGTERM, "leases", 2, "user", "alice", "error", errors.New("no"))
	var got map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	for key, want := range map[string]any{"after": "1.5s", "left": "3s", "signal": "terminated", "leases": 2.0, "user": "alice", "error": "no"} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestLogLevelChanges(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, hclog.Error, Text)
	derived := log.With("node", "a")
	derived.Info("before")
	log.SetLevel(hclog.Info)
	derived.Info("after")
	if got := out.String(); strings.Contains(got, "before") || !strings.Contains(got, "after") {
		t.Errorf("got %q, want only what was logged after the change", got)
	}
}

func TestLogFormatChanges(t *testing.T) {
	var out bytes.Buffer
	log := New(&out, hclog.Info, Text)
	derived := log.With("node", "a").Named("x")
	say := func() string {
		out.Reset()
		derived.Debug("not shown")
		derived.Info("up")
		return out.String()
	}
	if got := say(); !strings.HasSuffix(got, "[INFO]  x: up: node=a\n") {
		t.Errorf("as text: got %q", got)
	}
	SetFormat(log, JSON)
	var fields map[string]any
	if err := json.Unmarshal([]byte(say()), &fields); err != nil || fields["@message"] != "up" || fields["node"] != "a" {
		t.Errorf("as JSON: %v, %v", fields, err)
	}
	log.SetLevel(hclog.Warn)
	if got := say(); got != "" {
		t.Errorf("at warn: got %q, want nothing", got)
	}
	SetFormat(log, Text)
	if got := say(); got != "" {
		t.Errorf("at warn, as text: got %q, want nothing", got)
	}
}

func TestParseLogLevel(t *testing.T) {
	for word, want := range map[string]hclog.Level{"trace": hclog.Trace, "debug": hclog.Debug, "info": hclog.Info, "warn": hclog.Warn, "error": hclog.Error} {
		if got, err := ParseLevel(word); got != want || err != nil {
			t.Errorf("%s: got %v, %v; want %v", word, got, err, want)
		}
	}
	for _, word := range []string{"", "INFO", "off", "warning"} {
		if got, err := ParseLevel(word); err == nil {
			t.Errorf("%q: got %v, want an error", word, got)
		}
	}
}
