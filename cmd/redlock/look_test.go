package main

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

var shown = cmdtest.Replies{
	ipc.VerbWho: cmdtest.Reply("- lock=job mode=exclusive host=web3 pid=4121 user=cron since=2588 ttl=7412 held=3 nodes=5",
		"- lock=job mode=exclusive ttl=900 held=2 nodes=5",
		"- lock=job mode=exclusive slots=5 slot=2 host=web4 pid=12 user=cron since=2588 ttl=900 held=3 nodes=5", "OK n=3"),
	ipc.VerbList: cmdtest.Reply("- lock=job state=held mode=exclusive fence=77 ttl=7412 pid=4121 user=cron since=62588 note=why%2C%20because",
		"- lock=job state=waiting mode=exclusive pid=77 user=www since=20",
		"- lock=a%2Cb,job state=waiting mode=shared pid=78 user=www since=20", "- lock=gpu state=waiting mode=exclusive slots=4 pid=79 user=www since=20", "OK n=4"),
	ipc.VerbStatus: cmdtest.Reply("- node=a address=10.0.0.1:6379 state=ready wakeups=polling rtt=2 write=3", "- node=bb address=unix:/b state=quarantined left=12000 : restarted",
		"- node=d address=10.0.0.4:6379 state=quarantined left=13000 : restarted",
		"- node=c address=10.0.0.3:6379 state=down : redis-c: connection refused", "OK n=4 nodes=4 quorum=3 spare=-2 waiters=1 leases=2 left=12000 max_ttl=30000 lost=4 repairs=0 : no quorum for another 12s"),
}

var noted = cmdtest.Replies{
	ipc.VerbWho:  cmdtest.Reply("- lock=job mode=exclusive host=web3 pid=41 user=cron since=2588 ttl=900 held=3 nodes=5 note=by%20hand", "OK n=1"),
	ipc.VerbList: cmdtest.Reply("- lock=a,b state=lost mode=exclusive fence=77 ttl=900 pid=41 user=cron since=1000", "OK n=1"),
}

// fleet is a reply to LIST all=yes.
var fleet = cmdtest.Replies{
	ipc.VerbList: cmdtest.Reply("- lock=a state=held mode=shared host=web1 pid=41 user=cron since=2588 ttl=900 held=3 nodes=5 wanted=yes waiting_hosts=web3,web4 waiting_ms=3100,20",
		"- lock=a state=held mode=shared host=web2 pid=42 user=cron since=2588 ttl=900 held=3 nodes=5 wanted=yes waiting_hosts=web3,web4 waiting_ms=3100,20",
		"- lock=b%2Cc state=held mode=exclusive held=5 nodes=5 wanted=yes", "- lock=e state=held mode=shared many=yes nodes=5",
		"- lock=d state=turn mode=exclusive host=web5 pid=43 user=cron since=2588 ttl=900 held=5 nodes=5", "OK n=5 walked=3 walks=3"),
}

// wanted is a lock that clients wait for, and one that is free for a moment.
var wanted, free = cmdtest.Replies{
	ipc.VerbWho: cmdtest.Reply("- lock=job mode=exclusive host=web3 pid=41 user=cron since=2588 ttl=900 held=3 nodes=5", "OK n=1 waiting_hosts=web2,web4 waiting_ms=3100,20 position=2"),
}, cmdtest.Replies{
	ipc.VerbWho: cmdtest.Reply("OK n=0 waiting_hosts=web2 waiting_ms=3100"),
}

// kept is a lock that the nodes keep for a waiter, and that has no holder.
var kept = cmdtest.Replies{
	ipc.VerbWho: cmdtest.Reply("- lock=job mode=exclusive waiting=yes host=web3 pid=41 user=cron since=2588 ttl=900 held=3 nodes=5", "OK n=1"),
}

// wild holds replies with control characters that other users chose. redlock must not print them to
// a terminal.
var wild = cmdtest.Replies{
	ipc.VerbWho:    cmdtest.Reply("- lock=job mode=exclusive host=%1B[2J pid=41 user=%1B[2J since=2588 ttl=900 held=3 nodes=5 note=%1B[2J", "OK n=1"),
	ipc.VerbList:   cmdtest.Reply("- lock=job state=held mode=exclusive fence=77 ttl=900 pid=41 since=1000 note=%1B[2J", "OK n=1"),
	ipc.VerbStatus: cmdtest.Reply("- node=a address=:1 state=down : \u202e", "OK n=1 nodes=1 quorum=1 spare=-1 leases=0 : a: \u202e"),
}

func TestLook(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers cmdtest.Replies
		args    []string
		code    int
		want    string
	}{
		{"who", shown, []string{"who", "job"}, 0, `
HOST  PID   USER  MODE         SINCE  TTL    HELD
web3  4121  cron  exclusive    2.6s   7.4s   3/5
-     -     -     exclusive    -      900ms  2/5
web4  12    cron  slot 2 of 5  2.6s   900ms  3/5
`},
		{"who, free", cmdtest.NothingHeld, []string{"who", "job"}, 0, "\nfree\n"},
		{"who, with a note", noted, []string{"who", "job"}, 0, `
HOST  PID  USER  MODE       SINCE  TTL    HELD  NOTE
web3  41   cron  exclusive  2.6s   900ms  3/5   by hand
`},
		{"who, kept", kept, []string{"who", "job"}, 0, `
HOST  PID  USER  MODE  SINCE  TTL    HELD
web3  41   cron  next  2.6s   900ms  3/5
`},
		{"who, kept, JSON", kept, []string{"who", "--json", "job"}, 0, `
{
  "lock": "job",
  "free": false,
  "holders": [
    {
      "mode": "exclusive",
      "slots": 0,
      "slot": 0,
      "host": "web3",
      "pid": 41,
      "user": "cron",
      "since_ms": 2588,
      "ttl_ms": 900,
      "held": 3,
      "nodes": 5,
      "next": true
    }
  ],
  "waiting_hosts": [],
  "waiting_ms": []
}
`},
		{"who, hosts wait", wanted, []string{"who", "job"}, 0, `
HOST  PID  USER  MODE       SINCE  TTL    HELD
web3  41   cron  exclusive  2.6s   900ms  3/5
waiting: web2 3.1s, web4 20ms
`},
		{"who, free, but a host waits", free, []string{"who", "job"}, 0, `
free
waiting: web2 3.1s
`},
		{"who, a host waits, JSON", free, []string{"who", "job", "--json"}, 0, `
{
  "lock": "job",
  "free": true,
  "holders": [],
  "waiting_hosts": [
    "web2"
  ],
  "waiting_ms": [
    3100
  ]
}
`},
		{"list, all hosts", fleet, []string{"list", "--all"}, 0, `
LOCK   HOST  PID  USER  MODE       SINCE  TTL    HELD  WAITING
a      web1  41   cron  shared     2.6s   900ms  3/5   web3 3.1s, web4 20ms
a      web2  42   cron  shared     2.6s   900ms  3/5   web3 3.1s, web4 20ms
b%2Cc  -     -    -     exclusive  -      -      5/5   ?
d      web5  43   cron  next       2.6s   900ms  5/5   -
e      many  -    -     shared     -      -      -     -
`},
		{"list, all hosts, JSON", fleet, []string{"list", "--all", "--json"}, 0, `
{"lock":"a","many":false,"wanted":true,"waiting_hosts":["web3","web4"],"waiting_ms":[3100,20],"holders":[{"mode":"shared","slots":0,"slot":0,"host":"web1","pid":41,"user":"cron","since_ms":2588,"ttl_ms":900,"held":3,"nodes":5},{"mode":"shared","slots":0,"slot":0,"host":"web2","pid":42,"user":"cron","since_ms":2588,"ttl_ms":900,"held":3,"nodes":5}]}
{"lock":"b%2Cc","many":false,"wanted":true,"waiting_hosts":[],"waiting_ms":[],"holders":[{"mode":"exclusive","slots":0,"slot":0,"host":"","pid":0,"user":"","since_ms":0,"ttl_ms":0,"held":5,"nodes":5}]}
{"lock":"e","many":true,"wanted":false,"waiting_hosts":[],"waiting_ms":[],"holders":[]}
{"lock":"d","many":false,"wanted":false,"waiting_hosts":[],"waiting_ms":[],"holders":[{"mode":"exclusive","slots":0,"slot":0,"host":"web5","pid":43,"user":"cron","since_ms":2588,"ttl_ms":900,"held":5,"nodes":5,"next":true}]}
`},
		{"list, all hosts, none", cmdtest.NothingHeld, []string{"list", "--all"}, 0, "\nno host holds a lock that you may see\n"},
		{"list, what was lost", noted, []string{"list"}, 0, `
LOCK  STATE  MODE       PID  USER  SINCE  TTL    FENCE  NOTE
a,b   lost   exclusive  41   cron  1s     900ms  77
`},
		{"who, wild words", wild, []string{"who", "job"}, 0, `
HOST       PID  USER       MODE       SINCE  TTL    HELD  NOTE
"\x1b[2J"  41   "\x1b[2J"  exclusive  2.6s   900ms  3/5   "\x1b[2J"
`},
		{"list, wild words, nobody known", wild, []string{"list"}, 0, `
LOCK  STATE  MODE       PID  USER  SINCE  TTL    FENCE  NOTE
job   held   exclusive  41   -     1s     900ms  77     "\x1b[2J"
`},
		{"status, wild words", wild, []string{"status"}, exit.Unavailable, `
NOT READY (a quorum is 1 of 1 node): "a: \u202e"
connections 0, leases 0, waiters 0

NODE  ADDRESS  STATE  RTT  WRITE
a     :1       down   -    -

a: "\u202e"
`},
		{"who, JSON", shown, []string{"who", "job", "--json"}, 0, `
{
  "lock": "job",
  "free": false,
  "holders": [
    {
      "mode": "exclusive",
      "slots": 0,
      "slot": 0,
      "host": "web3",
      "pid": 4121,
      "user": "cron",
      "since_ms": 2588,
      "ttl_ms": 7412,
      "held": 3,
      "nodes": 5
    },
    {
      "mode": "exclusive",
      "slots": 0,
      "slot": 0,
      "host": "",
      "pid": 0,
      "user": "",
      "since_ms": 0,
      "ttl_ms": 900,
      "held": 2,
      "nodes": 5
    },
    {
      "mode": "exclusive",
      "slots": 5,
      "slot": 2,
      "host": "web4",
      "pid": 12,
      "user": "cron",
      "since_ms": 2588,
      "ttl_ms": 900,
      "held": 3,
      "nodes": 5
    }
  ],
  "waiting_hosts": [],
  "waiting_ms": []
}
`},
		{"who, free, JSON", cmdtest.NothingHeld, []string{"who", "--json", "job"}, 0, `
{
  "lock": "job",
  "free": true,
  "holders": [],
  "waiting_hosts": [],
  "waiting_ms": []
}
`},
		{"list", shown, []string{"list"}, 0, `
LOCK       STATE    MODE          PID   USER  SINCE  TTL   FENCE  NOTE
job        held     exclusive     4121  cron  1m3s   7.4s  77     why, because
job        waiting  exclusive     77    www   20ms   -     -
a%2Cb,job  waiting  shared        78    www   20ms   -     -
gpu        waiting  1 of 4 slots  79    www   20ms   -     -
`},
		{"list, nothing", cmdtest.NothingHeld, []string{"list"}, 0, "\nno lock that you may see is held or waited for\n"},
		{"list, JSON", shown, []string{"list", "--json"}, 0, `
[
  {
    "lock": "job",
    "locks": [
      "job"
    ],
    "state": "held",
    "mode": "exclusive",
    "slots": 0,
    "slot": 0,
    "pid": 4121,
    "user": "cron",
    "since_ms": 62588,
    "ttl_ms": 7412,
    "fence": 77,
    "note": "why, because"
  },
  {
    "lock": "job",
    "locks": [
      "job"
    ],
    "state": "waiting",
    "mode": "exclusive",
    "slots": 0,
    "slot": 0,
    "pid": 77,
    "user": "www",
    "since_ms": 20,
    "ttl_ms": 0,
    "fence": 0,
    "note": ""
  },
  {
    "lock": "a%2Cb,job",
    "locks": [
      "a,b",
      "job"
    ],
    "state": "waiting",
    "mode": "shared",
    "slots": 0,
    "slot": 0,
    "pid": 78,
    "user": "www",
    "since_ms": 20,
    "ttl_ms": 0,
    "fence": 0,
    "note": ""
  },
  {
    "lock": "gpu",
    "locks": [
      "gpu"
    ],
    "state": "waiting",
    "mode": "exclusive",
    "slots": 4,
    "slot": 0,
    "pid": 79,
    "user": "www",
    "since_ms": 20,
    "ttl_ms": 0,
    "fence": 0,
    "note": ""
  }
]
`},
		{"list, nothing, JSON", cmdtest.NothingHeld, []string{"list", "--json"}, 0, "\n[]\n"},
		{"status", shown, []string{"status"}, exit.Unavailable, `
NOT READY (a quorum is 3 of 4 nodes): no quorum for another 12s
connections 0, leases 2, waiters 1, lost 4, waiters poll 1 of the nodes

NODE  ADDRESS        STATE                RTT  WRITE
a     10.0.0.1:6379  ready                2ms  3ms
bb    unix:/b        quarantined for 12s  -    -
d     10.0.0.4:6379  quarantined for 13s  -    -
c     10.0.0.3:6379  down                 -    -

bb, d: restarted

c: redis-c: connection refused
`},
		{"status, ready", cmdtest.NothingHeld, []string{"status"}, 0, `
ready (a quorum is 1 of 1 node): locks work, but no further node may fail
connections 0, leases 0, waiters 0

NODE  ADDRESS  STATE  RTT  WRITE
a     :1       ready  -    -
`},
		{"status, JSON", shown, []string{"status", "--json"}, exit.Unavailable, `
{
  "ready": false,
  "quorum": 3,
  "spare": -2,
  "left_ms": 12000,
  "max_ttl_ms": 30000,
  "text": "no quorum for another 12s",
  "nodes": [
    {
      "node": "a",
      "address": "10.0.0.1:6379",
      "state": "ready",
      "left_ms": 0,
      "rtt_ms": 2,
      "write_ms": 3,
      "wakeups": "polling",
      "reason": ""
    },
    {
      "node": "bb",
      "address": "unix:/b",
      "state": "quarantined",
      "left_ms": 12000,
      "rtt_ms": 0,
      "write_ms": 0,
      "wakeups": "",
      "reason": "restarted"
    },
    {
      "node": "d",
      "address": "10.0.0.4:6379",
      "state": "quarantined",
      "left_ms": 13000,
      "rtt_ms": 0,
      "write_ms": 0,
      "wakeups": "",
      "reason": "restarted"
    },
    {
      "node": "c",
      "address": "10.0.0.3:6379",
      "state": "down",
      "left_ms": 0,
      "rtt_ms": 0,
      "write_ms": 0,
      "wakeups": "",
      "reason": "redis-c: connection refused"
    }
  ],
  "counts": {
    "leases": 2,
    "lost": 4,
    "repairs": 0,
    "waiters": 1
  }
}
`},
		{"names are completed", shown, []string{"__complete", "who", ""}, 0, "\na%2Cb\ngpu\njob\n:4\n"},
		{"names are completed for run", shown, []string{"__complete", "run", "-n", ""}, 0, "\na%2Cb\ngpu\njob\n:4\n"},
		{"names are completed for force", shown, []string{"__complete", "force", "--yes", ""}, 0, "\na%2Cb\ngpu\njob\n:4\n"},
		{"after a comma, the others are", shown, []string{"__complete", "run", "job,"}, 0, "\njob,a%2Cb\njob,gpu\n:4\n"},
		{"after a beginning, too", shown, []string{"__complete", "unlock", "gpu,job,a"}, 0, "\ngpu,job,a%2Cb\n:4\n"},
		{"one name is enough", shown, []string{"__complete", "watch", "job", ""}, 0, "\n:4\n"},
		{"nodes in quarantine are completed", shown, []string{"__complete", "admit", ""}, 0, "\nall\nbb\nd\n:4\n"},
		{"no files for numbers", shown, []string{"__complete", "top", "--interval", ""}, 0, "\n:4\n"},
		{"no flags that contradict", shown, []string{"__completeNoDesc", "run", "-n", "--t"}, 0, "\n--ttl\n:4\n"},
		{"nor kinds", shown, []string{"__completeNoDesc", "lock", "--slots", "3", "--s"}, 0, "\n--socket\n:4\n"},
		{"nor those of aliases", shown, []string{"__completeNoDesc", "run", "-e", "--s"}, 0, "\n--socket\n:4\n"},
		{"nor those of readers", shown, []string{"__completeNoDesc", "run", "-s", "--ex"}, 0, "\n--exec\n:4\n"},
		{"commands are completed", shown, []string{"__completeNoDesc", "do"}, 0, "\ndoctor\n:4\n"},
		{"then files are", shown, []string{"__complete", "run", "job", ""}, 0, "\n:0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := cmdtest.StartFake(t, test.answers)
			code, stdout, stderr := here(t, f.Socket, test.args...)
			if code != test.code || stdout != test.want[1:] {
				t.Errorf("exit code %d, want %d; stderr %q; stdout:\n%swant:\n%s", code, test.code, stderr, stdout, test.want[1:])
			}
		})
	}
}

// Bash inserts the common prefix of several names unquoted, and evaluates the line at the next TAB.
// Any user may choose a name, so a name could run as a command of the user who completes it.
func TestCompletesNoCommands(t *testing.T) {
	names := []string{"a$(>b)1", "a$(>b)2", "a`>b`", "a b", "a;b", "a&b", "a|b", "a<b", "a>b", "a(b)", "a{b}", "a[b]", "a*", "a?", "a!b", "a#b",
		"a^b", "a~", "a'b", `a"b`, `a\b`, "-a", "\u202ea", "a\u00a0b", "a/b.c:1@d+e=f_g-h%", "ümlaut"}
	var lines []string
	for _, name := range names {
		lines = append(lines, "- lock="+strings.ReplaceAll(url.QueryEscape(name), "+", "%20")+" state=held mode=exclusive fence=1 ttl=1000 pid=1 user=alice since=1")
	}
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbList: cmdtest.Reply(append(lines, "OK n="+strconv.Itoa(len(lines)))...)})
	for args, want := range map[string]string{"who ": "a/b.c:1@d+e=f_g-h%\nümlaut\n:4\n", "run job,": "job,a/b.c:1@d+e=f_g-h%\njob,ümlaut\n:4\n"} {
		command, word, _ := strings.Cut(args, " ")
		if _, stdout, stderr := here(t, f.Socket, "__complete", command, word); stdout != want {
			t.Errorf("redlock %s is completed to %q, want %q; stderr %q", args, stdout, want, stderr)
		}
	}
}

func TestLookRefused(t *testing.T) {
	for _, test := range []struct {
		args   []string
		answer string
		code   int
	}{
		{[]string{"who", "job"}, "ERR NOQUORUM : a: timeout, b: timeout", exit.Unavailable},
		{[]string{"who", "job"}, "ERR DENIED : rule web", exit.Denied},
		{[]string{"list"}, "ERR LIMIT : requests_per_second", exit.Denied},
		{[]string{"status"}, "ERR INTERNAL : oops", exit.Internal},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbWho: cmdtest.Reply(test.answer), ipc.VerbList: cmdtest.Reply(test.answer), ipc.VerbStatus: cmdtest.Reply(test.answer)})
		code, stdout, stderr := here(t, f.Socket, test.args...)
		_, text, _ := strings.Cut(test.answer, ": ")
		cmdtest.CheckExit(t, code, test.code, stderr, text)
		if stdout != "" {
			t.Errorf("%v: stdout is %q, want nothing", test.args, stdout)
		}
	}
}

// This test repeats the checks with a real daemon.
func TestLookAtDaemon(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p, _ := cmdtest.RunPuppet(t, socket, "--note", "why")
	awaitStatus(t, socket, "five nodes that are ready", func(status *client.Status) bool { return status.Spare == 2 })
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"who", "job"}, []string{"HOST", "exclusive", "/5", "why\n"}},
		{[]string{"list"}, []string{"LOCK", "job", "held", "why"}},
		{[]string{"status"}, []string{"ready (a quorum is 3 of 5 nodes): locks work, and 2 more nodes may fail\n", "leases 1", "embedded"}},
	} {
		code, stdout, stderr := cmdtest.Run(t, socket, test.args...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		for _, want := range test.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: %q is not in %q", test.args, want, stdout)
			}
		}
	}
	p.WriteLine("exit 0")
	p.ExpectExit(0)
	if _, stdout, _ := cmdtest.Run(t, socket, "who", "job"); stdout != "free\n" {
		t.Errorf("who after the end: %q, want free", stdout)
	}
}

func TestVersionAndCompletion(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"version"}, "redlock " + buildVersion() + "\n"},
		{[]string{"--version"}, "redlock " + buildVersion() + "\n"},
		{[]string{"completion", "bash"}, "__start_redlock"},
		{[]string{"completion", "zsh"}, "#compdef redlock"},
		{[]string{"completion", "fish"}, "complete -c redlock"},
		{[]string{"completion", "powershell"}, "Register-ArgumentCompleter -CommandName 'redlock'"},
		{[]string{"run", "--help"}, "redlock help run and redlock(1) say more."},
		{[]string{"help", "run"}, "EXIT CODES"},
	} {
		code, stdout, stderr := here(t, "/nowhere", test.args...)
		cmdtest.CheckExit(t, code, 0, stderr, "")
		if !strings.Contains(stdout, test.want) {
			t.Errorf("%v: %q is not in stdout", test.args, test.want)
		}
	}
}
