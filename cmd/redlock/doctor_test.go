package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/doctor"
	"github.com/redlockd/redlockd/ipc"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers cmdtest.Replies
		code    []int // the host's clock may be kept or not
		want    string
	}{
		{withHello(cmdtest.NothingHeld), []int{1}, "warning  node-count   there is one node: without it no lock can be taken; fix: 3 nodes tolerate the loss of one, 5 of two: see Changing the nodes in NODES.md\n"},
		{withHello(shown), []int{2}, "bad      quorum       1 of 4 nodes are ready, and 3 are needed: no lock can be taken for 12s, until quarantines end; fix: wait; see the findings about the nodes\n"},
		{cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("ERR DENIED : rule web")}, []int{2}, "bad      daemon  status: DENIED: rule web; fix: run redlock doctor as a user that has a right by a rule of the config's access block (root needs one, too)\n"},
		{withHello(cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("- node=a address=10.0.0.1:6379 state=ready rtt=2", "OK n=1 quorum=1 spare=0 max_ttl=30000 unnoted=yes table=unwritten : locks work")}), []int{2},
			"bad      table        a restart of redlockd would lose leases and waiters: its state file, beside its socket, cannot be written; fix: make room there (df);"},
		{cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("ERR LIMIT : 1000 connections of one user")}, []int{2}, "bad      daemon  status: LIMIT: 1000 connections of one user; fix: end some connections of this user, or raise the limit that the text names, in limits of the config (systemctl reload redlockd)\n"},
		{cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("- node=a address=:1 state=down : NOPERM this user has no permissions", "OK n=1 nodes=1 quorum=1 spare=-1 leases=0 : no quorum")}, []int{2}, "down: NOPERM this user has no permissions; fix: give the user that redlockd logs in as the rights in NODES.md (ACL SETUSER)"},
		{withHello(cmdtest.Replies{ipc.VerbStatus: cmdtest.Reply("- node=a address=10.0.0.1:6379 state=ready rtt=2", "- node=b address=10.0.0.2:6379 state=ready rtt=2",
			"- node=c address=10.0.0.3:6379 state=ready rtt=2", "OK n=3 quorum=2 spare=1 max_ttl=30000 : locks work")}), []int{0, 1},
			"ok       quorum       3 of 3 nodes are ready, and 2 are needed: 1 more may fail\n"},
	} {
		f := cmdtest.StartFake(t, test.answers)
		code, stdout, stderr := cmdtest.Run(t, f.Socket, "doctor")
		if !slices.Contains(test.code, code) || !strings.Contains(stdout, test.want) || strings.Contains(stdout, "answers in -") || stderr != "" {
			t.Errorf("exit code %d, want one of %v; stderr %q; stdout\n%swant in it\n%s", code, test.code, stderr, stdout, test.want)
		}
	}
}

// Without a daemon, redlock doctor says so and still runs the other checks.
func TestDoctorAlone(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := cmdtest.Run(t, "/nowhere/s", "doctor", "--json")
	cmdtest.CheckExit(t, code, 2, stderr, "")
	var got doctor.JSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) < 2 {
		t.Fatalf("found is %+v", got)
	}
	want := []doctor.FindingJSON{
		{Check: "socket", Result: "bad", Text: "there is no socket /nowhere/s", Fix: "start redlockd there (to try it out: redlockd -dev), or set REDLOCK_SOCKET, which names this path, to the socket of a running one"},
		{Check: "daemon", Result: "bad", Text: "redlockd cannot be asked", Fix: "see the finding about the socket"},
	}
	if got.Result != "bad" || !slices.Equal(got.Findings[:2], want) {
		t.Errorf("found is %+v, want %+v", got, want)
	}
}
