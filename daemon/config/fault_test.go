package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var updateGolden = flag.Bool("update-config-golden", false, "rewrite testdata/faulty/*.txt")

// TestConfigFaults compares the faults of each file in testdata/faulty with the text file beside it,
// byte by byte.
func TestConfigFaults(t *testing.T) {
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	t.Chdir("testdata/faulty")
	files, err := filepath.Glob("*.hcl")
	if err != nil || len(files) < 20 {
		t.Fatalf("got %d faulty files, %v; want at least 20", len(files), err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) { checkGolden(t, file) })
	}
}

func checkGolden(t *testing.T, file string) {
	cfg, err := Load(file)
	if err == nil {
		t.Fatalf("got no error and %+v", cfg)
	}
	golden := strings.TrimSuffix(file, ".hcl") + ".txt"
	got := err.Error() + "\n"
	if *updateGolden {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, secret := range []string{"hunter2", "hunter3"} {
		if strings.Contains(got, secret) {
			t.Errorf("the password %q is shown:\n%s", secret, got)
		}
	}
}

func TestConfigFileIsMissing(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.hcl"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
	var faults *Error
	if errors.As(err, &faults) {
		t.Errorf("got the Error %v for a file that does not exist", faults)
	}
}

func TestConfigTooLarge(t *testing.T) {
	name := filepath.Join(t.TempDir(), "large.hcl")
	if err := os.WriteFile(name, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(name); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("got %v, want an error about the size", err)
	}
}

// Load does not wait for the writer of a pipe.
func TestConfigFromAPipe(t *testing.T) {
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := Load(name)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil || !strings.Contains(err.Error(), "wanted a block quorum") {
			t.Errorf("a pipe without a writer: got %v, want that the config is empty", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Load waits for a writer")
	}
}

func TestConfigSuggestion(t *testing.T) {
	known := []string{"key_prefix", "max_ttl", "node_timeout", "node", "password_file"}
	for word, want := range map[string]string{
		"max_tll":     "; did you mean max_ttl?",
		"timeout":     "; did you mean node_timeout?",
		"nodes":       "; did you mean node?",
		"password":    "; did you mean password_file?",
		"keyprefix":   "; did you mean key_prefix?",
		"MAX_TTL":     "; did you mean max_ttl?",
		"zebra":       "",
		"x":           "",
		"connections": "",
	} {
		if got := suggestion(word, known); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"ttl", "tll", 1}, {"flaw", "lawn", 2}} {
		if got := editDistance(c.a, c.b); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestConfigQuote(t *testing.T) {
	for value, want := range map[string]string{
		"10.0.0.1":                           `"10.0.0.1"`,
		"redis://u:hunter2@h:1":              `"…@h:1"`,
		"redis://u:h@unter2@h:1":             `"…@h:1"`,
		"redis://u:hun?ter2@h:1":             `"…@h:1"`,
		"redis://h:1?user=u&password=hunter": `"redis://h:1?…"`,
		"a\nb":                               `"a\nb"`,
		strings.Repeat("x", 81):              `"` + strings.Repeat("x", 80) + `…"`,
	} {
		if got := quote(value); got != want {
			t.Errorf("%q: got %s, want %s", value, got, want)
		}
	}
}
