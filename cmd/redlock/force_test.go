package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/describe"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

const forcedWeb3 = "OK lock=job n=1 held=3 host=web3 pid=12 user=cron since=100 : told"

func TestForce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer string
		args   []string
		code   int
		want   string
	}{
		{forcedWeb3, []string{"--yes", "job"}, 0, "taken from cron on web3 (pid 12), which may continue to work until it notices\n"},
		{"OK lock=job n=0", []string{"--yes", "job"}, 0, "nobody held it\n"},
		{"OK lock=job n=1 held=3", []string{"--yes", "job"}, 0, "taken from another Redlock client, which does not identify itself and may continue to work until it notices\n"},
		{"OK lock=job n=64", []string{"--yes", "job"}, 0, "taken from 64 holders, which may continue to work until they notice\n"},
		{"OK lock=job n=64 also=a,b", []string{"--yes", "job"}, 0, "taken from 64 holders, which may continue to work until they notice\nlost with it, but still taken until the holder has stopped: a, b\n"},
		{"OK lock=job n=64 also=a%2Cb,c", []string{"--yes", "job"}, 0, "taken from 64 holders, which may continue to work until they notice\nlost with it, but still taken until the holder has stopped: a%2Cb, c\n"},
		{"OK lock=job n=64 also=a,b", []string{"--yes", "job", "--json"}, 0, `{
  "lock": "job",
  "forced": 64,
  "holder": null,
  "also": [
    "a",
    "b"
  ]
}
`},
		{"OK lock=job n=64", []string{"--yes", "job", "--json"}, 0, `{
  "lock": "job",
  "forced": 64,
  "holder": null
}
`},
		{forcedWeb3, []string{"--yes", "job", "--json"}, 0, `{
  "lock": "job",
  "forced": 1,
  "holder": {
    "host": "web3",
    "pid": 12,
    "user": "cron",
    "since_ms": 100,
    "held": 3
  }
}
`},
		{"ERR DENIED : only root", []string{"--yes", "job"}, exit.Denied, ""},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbForce: cmdtest.Reply(test.answer)})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, append([]string{"force"}, test.args...)...)
		if code != test.code || stdout != test.want {
			t.Errorf("%s: exit code %d, want %d; stderr %q; stdout:\n%swant:\n%s", test.answer, code, test.code, stderr, stdout, test.want)
		}
	}
}

func TestForceIsNotMeant(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbForce: cmdtest.Reply(forcedWeb3)})
	code, _, stderr := cmdtest.Run(t, f.Socket, "force", "job")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "--yes is required")
	if len(f.Requests) > 0 {
		t.Errorf("the daemon was asked: %v", <-f.Requests)
	}
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer []string
		args   []string
		code   int
		want   string
	}{
		{[]string{"- node=a state=ready", "- node=b state=ready", "OK n=2"}, []string{"all"}, 0, "a\nb\n"},
		{[]string{"OK n=0"}, []string{"all"}, 0, "no node is in quarantine\n"},
		{[]string{"- node=a state=ready", "OK n=1"}, []string{"a", "--json"}, 0, "{\n  \"admitted\": [\n    \"a\"\n  ]\n}\n"},
		{[]string{"OK n=0"}, []string{"all", "--json"}, 0, "{\n  \"admitted\": []\n}\n"},
		{[]string{"ERR OPTION : there is no such node"}, []string{"x"}, exit.Usage, ""},
		{[]string{"ERR OPTION : node b is ready, not in quarantine"}, []string{"b"}, 0, "node b is ready, and not in quarantine\n"},
		{[]string{"ERR OPTION : node b is ready, not in quarantine"}, []string{"b", "--json"}, 0, "{\n  \"admitted\": []\n}\n"},
		{[]string{"ERR OPTION : node c is down, not in quarantine"}, []string{"c"}, exit.Unavailable, ""},
		{[]string{"ERR DENIED : only root"}, []string{"all"}, exit.Denied, ""},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbAdmit: cmdtest.Reply(test.answer...), ipc.VerbStatus: cmdtest.Reply("- node=a state=quarantined left=12000 : restarted",
			"- node=b state=ready", "- node=c state=down : redis-c: connection refused", "OK n=3 quorum=2 spare=-1")})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, append([]string{"admit"}, test.args...)...)
		if code != test.code || stdout != test.want {
			t.Errorf("%v, %q: exit code %d, want %d; stderr %q; stdout %q, want %q", test.args, test.answer, code, test.code, stderr, stdout, test.want)
		}
		if req := f.ExpectRequest(ipc.VerbAdmit); req.Words[0] != test.args[0] {
			t.Errorf("ADMIT %q was asked for, want %q", req.Words, test.args[0])
		}
	}
}

// If the node is down, redlock admit does not blame the command line.
func TestAdmitNodeThatIsDown(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbAdmit: cmdtest.Reply("ERR OPTION : node c is down, not in quarantine"),
		ipc.VerbStatus: cmdtest.Reply("- node=c state=down : redis-c: connection refused", "OK n=1 quorum=1 spare=-1")})
	code, _, stderr := cmdtest.Run(t, f.Socket, "admit", "c")
	cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "node c cannot be admitted while it is down: redis-c: connection refused (")
	if strings.Contains(stderr, "--help") {
		t.Errorf("stderr %q sends to the help", stderr)
	}
}

func TestForcedTextControlsNoTerminal(t *testing.T) {
	forced := client.Forced{Holders: 1, Holder: &client.Holder{Host: "\x1b[2J", User: "\x1b[2J"}, Also: []string{"\x1b[2J"}}
	got := forcedText(forced) + alsoText(forced)
	if strings.Contains(got, "\x1b") {
		t.Errorf("a holder controls the terminal: %q", got)
	}
}

func TestHolderWord(t *testing.T) {
	h := client.Holder{Host: "web3", User: "alice", PID: 4121, Mode: "exclusive"}
	if got, want := describe.HolderName(&h), "alice on web3 (pid 4121)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	h.PID = 0 // the holder's daemon does not see the process
	if got, want := describe.HolderSentence(h), "alice on web3 (exclusive, for -)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := forcedText(client.Forced{Holders: 1, Holder: &h}), "taken from alice on web3, which may continue to work until it notices"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
