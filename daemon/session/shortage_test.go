package session

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/redlockd/redlockd/daemon/access"
	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/logging"
	"github.com/redlockd/redlockd/ipc"
)

// An error for lack of a system resource names the resource, and is not reported as the end of a
// process.
func TestShortage(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.EMFILE:  "LimitNOFILE=",
		syscall.ENFILE:  "fs.file-max",
		syscall.ENOMEM:  "MemoryMax=",
		syscall.ENOBUFS: "MemoryMax=",
		syscall.ENOSPC:  "max_user_watches",
	} {
		err := peerError(fmt.Errorf("a pidfd of the peer: %w", errno))
		if got := err.Error(); codeOf(err) != ipc.CodeLimit || !strings.Contains(got, want) {
			t.Errorf("%v: %v %q, want LIMIT and %q", errno, codeOf(err), got, want)
		}
	}
	for _, errno := range []syscall.Errno{syscall.ESRCH, syscall.EINVAL} {
		if err := peerError(errno); err != errNoProcess {
			t.Errorf("%v: %v, want %v", errno, err, errNoProcess)
		}
	}
}

// Failures to accept connections are logged at most once a minute, and their end once.
func TestAcceptFailedIsLogged(t *testing.T) {
	var log bytes.Buffer
	now := time.Hour
	d := &Host{
		Log:    logging.New(&log, hclog.Info, logging.Text),
		Clock:  func() time.Duration { return now },
		Limits: access.NewLimits(config.Limits{}),
	}
	logged := func(what string, n int) {
		t.Helper()
		if got := strings.Count(log.String(), what); got != n {
			t.Fatalf("%q was logged %d times, want %d:\n%s", what, got, n, log.String())
		}
	}
	d.noteAccepting()
	logged("", 1) // nothing
	for range 100 {
		d.acceptFailed(syscall.ENOMEM, time.Millisecond)
		now += time.Millisecond
	}
	logged("no connection can be accepted for now", 1)
	logged("MemoryMax=", 1)
	d.noteAccepting()
	d.noteAccepting()
	logged("connections are accepted again", 1)
	d.acceptFailed(syscall.EMFILE, time.Millisecond)
	d.noteAccepting()
	logged("accepted", 2)
	now += time.Minute
	d.acceptFailed(syscall.EMFILE, time.Millisecond)
	logged("no connection can be accepted for now", 2)
	logged("LimitNOFILE=", 1)
}
