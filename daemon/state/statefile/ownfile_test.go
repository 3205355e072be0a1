package statefile

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// If another user puts files, links or pipes at the paths of a state file, the process neither reads
// them, nor waits for them, nor follows them. No other user can read the files that it writes.
func TestPlantedFiles(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole")
	first, _ := open(t, options(t, whole))
	first.Append([]byte("planted=1"))
	first.Close()
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(path string) error{
		"a link to a state file": func(path string) error { return os.Symlink(whole+".1", path) },
		"a link to another file": func(path string) error { return os.Symlink(victim, path) },
		"a link to nowhere":      func(path string) error { return os.Symlink(victim+"2", path) },
		"a pipe":                 func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a directory":            func(path string) error { return os.Mkdir(path, 0o777) },
		"a file that others can write to": func(path string) error {
			return copyAs(whole+".1", path, 0o666, os.Getuid())
		},
		"another user's file": func(path string) error {
			if os.Getuid() != 0 {
				t.Log("only root can create another user's file: not tested")
				return os.Mkdir(path, 0o777)
			}
			return copyAs(whole+".1", path, 0o600, 4001)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, filepath.Join(t.TempDir(), "t"))
			for i := range 12 {
				if err := plant(fmt.Sprintf("%s.%d%s", o.Path, i+1, []string{"", incompleteSuffix}[min(i, 1)])); err != nil {
					t.Fatal(err)
				}
			}
			if used := InUse(o.Path); used != "" {
				t.Errorf("%s is in use", used)
			}
			sf, state, damage, err := Open(o)
			if err != nil || len(state.(words)) != 0 || damage == nil {
				t.Fatalf("Open: state %v, damage %v, error %v; want an empty state, damage and no error", state, damage, err)
			}
			for i := range 200 { // enough for many rewrites
				sf.Append(fmt.Appendf(nil, "k%d=%d", i%10, i))
			}
			sf.Close()
			_, got := open(t, o)
			if len(got) != 10 {
				t.Errorf("got %v, want 10 words", got)
			}
			wantPrivate(t, o.Path)
			if content, err := os.ReadFile(victim); string(content) != "precious" {
				t.Errorf("the target of a link was changed: %q, %v", content, err)
			}
			if _, err := os.Lstat(victim + "2"); err == nil {
				t.Error("a file was created through a link")
			}
		})
	}
}

func copyAs(from, to string, mode os.FileMode, uid int) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, content, mode); err != nil {
		return err
	}
	if err := os.Chmod(to, mode); err != nil {
		return err
	}
	return os.Chown(to, uid, -1)
}

// wantPrivate fails the test if another user can read a file of the state file.
func wantPrivate(t *testing.T, path string) {
	t.Helper()
	files, err := filepath.Glob(path + ".*")
	if err != nil || len(files) == 0 {
		t.Fatalf("found the files %v, %v; want some", files, err)
	}
	for _, file := range files {
		info, err := os.Lstat(file)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v, want -rw-------", file, info.Mode(), err)
		}
	}
}
