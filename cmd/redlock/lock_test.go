package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

// redlock lock passes its flags on to the daemon. The process in --pid holds the lock after
// redlock lock has ended.
func TestRequestOfLock(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	start := time.Now()
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "lock", "--pid", strconv.Itoa(os.Getpid()), "-w", "90", "-t", "30s", "--max", "1h",
		"--linger", "0.25", "--beat", "10m", "--slots", "3", "--note", "why", "job")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if code != 0 || stdout != "" {
		t.Fatalf("stdout is %q, want nothing without --print", stdout)
	}
	got := f.ExpectRequest(ipc.VerbLock).Options
	checkWait(t, got.Wait, 90*time.Second, start)
	want := got
	want.Hold, want.PID = ipc.HoldPID, os.Getpid()
	want.TTL, want.Max, want.Slots = 30*time.Second, time.Hour, 3
	want.Linger, want.Beat, want.Note = 250*time.Millisecond, 10*time.Minute, "why"
	want.Set = ipc.OptHold | ipc.OptPID | ipc.OptWait | ipc.OptTTL | ipc.OptMax | ipc.OptSlots | ipc.OptLinger | ipc.OptBeat | ipc.OptNote | got.Set&(ipc.OptOwner|ipc.OptID)
	if got != want {
		t.Errorf("LOCK had %+v, want %+v", got, want)
	}
	if verbs := f.AwaitDisconnect(); len(verbs) > 0 {
		t.Errorf("then the daemon read %v, want nothing", verbs)
	}
}

// With --print, redlock lock prints the grant as redlock check does.
func TestLockPrints(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Granting())
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "lock", "--print", "job")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	for _, want := range []string{"REDLOCK_NAME='job'\n", "REDLOCK_FENCE='77'\n", "REDLOCK_LEASE='secret'\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it prints %q, want %q in it", stdout, want)
		}
	}
}
