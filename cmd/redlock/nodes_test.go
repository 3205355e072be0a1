package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/ipc"
)

var changeLines = []string{
	"- node=a address=10.0.0.1:6379 state=ready step=begun",
	"- node=d address=10.0.0.4:6379 state=quarantined left=12000 step=begun list=joining : it is new",
	"- host=web1 list=joint seen=0",
	"- host=web2 list=old seen=9000",
	"OK n=4 change=begun behind=a,d missing=d left=12000 : give this config to web2",
}

// redlock nodes shows nodes, hosts and what to do next.
func TestNodes(t *testing.T) {
	for _, test := range []struct {
		args, answer []string
		asks         string
		code         int
		stdout       string
		stderr       string
	}{
		{nil, changeLines, "", 0, "change: begun\nnext: give this config to web2\n\n" +
			"NODE  ADDRESS        STATE                LIST     STEP\na     10.0.0.1:6379  ready                -        begun\nd     10.0.0.4:6379  quarantined for 12s  joining  begun\n\n" +
			"HOST  LIST   SEEN\nweb1  joint  1ms ago\nweb2  old    9s ago\n", ""},
		{[]string{"--json"}, changeLines, "", 0, `{"change":"begun","next":"give this config to web2","nodes":[{"node":"a","address":"10.0.0.1:6379","state":"ready","step":"begun","list":"","reason":""},` +
			`{"node":"d","address":"10.0.0.4:6379","state":"quarantined","step":"begun","list":"joining","reason":"it is new"}],"hosts":[{"host":"web1","list":"joint","seen_ms":0},{"host":"web2","list":"old","seen_ms":9000}],` +
			`"behind":["a","d"],"missing":["d"],"left_ms":12000,"conflict":false,"unseen":false}`, ""},
		{nil, []string{"- node=a address=x state=ready", "OK n=1 : no change"}, "", 0, "change: none in the config of this host\nnext: no change\n", ""},
		{[]string{"commit"}, []string{"OK n=0 change=committed : wait"}, "commit", 0, "change: committed\nnext: wait\n", ""},
		{[]string{"undo", "--json"}, []string{"OK n=0 unseen=yes conflict=yes : done"}, "undo", 0, `{"change":"","next":"done","nodes":[],"hosts":[],"behind":[],"missing":[],"left_ms":0,"conflict":true,"unseen":true}`, ""},
		{[]string{"commit"}, []string{"ERR OPTION : hosts with the old list: web2"}, "commit", 69, "", "hosts with the old list: web2"},
		{[]string{"commit"}, []string{"ERR DENIED : not you"}, "commit", 77, "", "not you"},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbNodes: cmdtest.Reply(test.answer...)})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, append([]string{"nodes"}, test.args...)...)
		if strings.HasPrefix(stdout, "{") {
			stdout = strings.Join(strings.Fields(stdout), "")
			test.stdout = strings.Join(strings.Fields(test.stdout), "")
		}
		if code != test.code || !strings.HasPrefix(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
			t.Errorf("nodes %q: %d\n%s\n%s\nwant %d\n%s\n%s", test.args, code, stdout, stderr, test.code, test.stdout, test.stderr)
		}
		if req := f.ExpectRequest(ipc.VerbNodes); strings.Join(req.Words, " ") != test.asks {
			t.Errorf("NODES %q was asked for, want %q", req.Words, test.asks)
		}
	}
}

// Another word is a mistake in the command line, and asks no daemon.
func TestNodesRefusesOtherWords(t *testing.T) {
	code, _, stderr := cmdtest.Run(t, "/no/such/socket", "nodes", "forget")
	if code != 64 || !strings.Contains(stderr, "wanted commit, undo or nothing") {
		t.Errorf("%d, %s", code, stderr)
	}
}
