//go:build linux

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
)

// Each grant of a lock has a larger fencing token than earlier grants, for any client and through
// any daemon.
func TestFencesGrow(t *testing.T) {
	cluster, first, _ := five(t)
	second := newHost(t, cluster)
	second.serve()
	desks := []*terminal{first.nc(), second.nc()}
	last := int64(0)
	grows := func(who string, fence int64) {
		t.Helper()
		if fence <= last {
			t.Fatalf("the token of %s is %d, after %d", who, fence, last)
		}
		last = fence
	}
	for i := range 20 {
		n := desks[i%2]
		grows("LOCK", number(t, n.expect("LOCK job wait=0", "OK lock=job"), "fence"))
		n.expect("UNLOCK job", "OK lock=job")
	}
	grows("redlock run", fenceOfRun(t, first))
	grows("client.Lease", fenceOfLease(t, second))
	grows("redlock run", fenceOfRun(t, second))
}

func fenceOfRun(t *testing.T, h *host) int64 {
	t.Helper()
	output, err := printed(h.redlock("run", "job", "printenv", "REDLOCK_FENCE"))
	fence, notNumber := strconv.ParseInt(string(bytes.TrimSpace(output)), 10, 64)
	if err != nil || notNumber != nil {
		t.Fatalf("redlock run printenv REDLOCK_FENCE: %v: %q", err, output)
	}
	return fence
}

func fenceOfLease(t *testing.T, h *host) int64 {
	t.Helper()
	c, err := client.Dial(within(t), h.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	lease, err := c.Lock(within(t), "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Unlock(within(t)); err != nil {
		t.Error(err)
	}
	return int64(lease.Fence())
}

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
