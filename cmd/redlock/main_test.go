package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
)

func init() {
	cmdtest.Roles[cmdtest.RoleRedlock] = func(args []string) int { return run(args, os.Stdin, os.Stdout, os.Stderr) }
}

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }

// here runs redlock to its end in this process. A process of its own takes a tenth of a second of the processors,
// so only tests of commands, signals and terminals have one. The test cannot be parallel.
func here(t *testing.T, socket string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv(cmdtest.SocketVariable, socket)
	dir := t.TempDir()
	create := func(name string) *os.File {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		return file
	}
	read := func(file *os.File) string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	in, out, errors := create("stdin"), create("stdout"), create("stderr")
	code = run(args, in, out, errors)
	return code, read(out), read(errors)
}
