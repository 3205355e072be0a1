//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// redlock returns the command, set up for the host's daemon.
func (h *host) redlock(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(binaries, "redlock"), args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "REDLOCK_SOCKET="+h.socket)
	return cmd
}

// The store of GUARANTEES.md accepts the holder's write, and rejects a later write of an earlier
// holder.
func TestPageFencedStore(t *testing.T) {
	t.Parallel()
	h, _, _ := dev(t)
	store := only(t, "GUARANTEES.md", "sh", "# store.sh FENCE TEXT")
	writeFile(t, filepath.Join(h.dir, "store.sh"), store.text())
	write := func(text string) *exec.Cmd {
		return h.redlock("run", "report", "sh", "-c", `printenv REDLOCK_FENCE; sh ./store.sh "$REDLOCK_FENCE" "$0"`, text)
	}
	first, err := combined(write("one"))
	if err != nil {
		t.Fatalf("%v: %s", err, first)
	}
	if output, err := combined(write("two")); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	late := exec.Command("sh", "./store.sh", strings.TrimSpace(string(first)), "late")
	late.Dir = h.dir
	if output, err := combined(late); err == nil || !strings.Contains(string(output), "refused") {
		t.Errorf("the earlier token is not rejected: %v: %s", err, output)
	}
	if stored := readFile(t, filepath.Join(h.dir, "report")); stored != "two\n" {
		t.Errorf("stored is %q, expected what the second holder wrote", stored)
	}
}
