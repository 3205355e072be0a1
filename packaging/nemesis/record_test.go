package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checked checks a history file, and returns what was printed and the exit code.
func checked(t *testing.T, path string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code := start([]string{"-check", path}, &out, &out)
	return out.String(), code
}

// unpacked returns the text of the history in the tree.
func unpacked(t *testing.T) string {
	t.Helper()
	file, err := os.Open("testdata/history.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(in); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestHistoryInTree(t *testing.T) {
	out, code := checked(t, "testdata/history.jsonl.gz")
	if code != 0 || !strings.Contains(out, "0 violations") {
		t.Errorf("exit code %d: %s", code, out)
	}
	for _, kind := range []string{`"died":true`, `"excuse":`, `"reason":"lost"`, `"mode":"shared"`} {
		if !strings.Contains(unpacked(t), kind) {
			t.Errorf("it has no %s", kind)
		}
	}
}

func TestBadHistories(t *testing.T) {
	good := unpacked(t)
	header, rest, _ := strings.Cut(good, "\n")
	grant := `{"at":50,"client":1,"hold":{"id":1,"names":["x"],"mode":"exclusive","fence":5,"asked":10,"granted":20,"until":40,"ended":0}}` + "\n"
	second := strings.NewReplacer(`"client":1`, `"client":2`, `"fence":5`, `"fence":6`, `"granted":20`, `"granted":39`, `"until":40`, `"until":60`).Replace(grant)
	for name, c := range map[string]struct {
		text string
		code int
		want string
	}{
		"two holders":        {header + "\n" + grant + second, exitViolation, `lock "x": two holders for 1ns`},
		"the first one died": {header + "\n" + grant + `{"at":39,"client":1,"died":true}` + "\n" + second, 0, "0 violations"},
		"revoked by FORCE":   {header + "\n" + grant + second + `{"at":60,"excuse":{"name":"x","from":30,"to":40}}` + "\n", 0, "0 violations"},
		"empty":              {"", exitUnavailable, "the file is empty"},
		"no header":          {rest, exitUnavailable, ":1: the first line must be a header of format 1"},
		"another format":     {strings.Replace(good, `"format":1`, `"format":2`, 1), exitUnavailable, ":1: the first line must be a header of format 1"},
		"an unknown event":   {header + "\n" + `{"at":1,"client":1}` + "\n", exitUnavailable, `:2: the line has none of "hold", "died" and "excuse"`},
		"an unknown field":   {header + "\n" + `{"at":1,"cilent":1}` + "\n", exitUnavailable, `:2: json: unknown field "cilent"`},
		"cut":                {header + "\n" + grant[:40], exitUnavailable, ":2: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "history.jsonl")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, code := checked(t, path); code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, %s; want %d and %q", code, out, c.code, c.want)
			}
		})
	}
	if out, code := checked(t, filepath.Join(t.TempDir(), "missing")); code != exitUnavailable || !strings.Contains(out, "no such file") {
		t.Errorf("a missing file: exit code %d, %s", code, out)
	}
}
