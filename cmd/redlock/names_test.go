package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// redlock run asks the daemon for all names of a list with commas.
func TestRequestOfSeveral(t *testing.T) {
	t.Parallel()
	for word, want := range map[string][]string{
		"job": {"job"}, "a,b": {"a", "b"}, "a%2Cb": {"a,b"}, "accounts/4,x%2Cy": {"accounts/4", "x,y"},
	} {
		for _, args := range [][]string{{"run", word, "printenv", "REDLOCK_NAME"}, {"run", "-n", word, "printenv", "REDLOCK_NAME"}, {"run", "-w", "9", word, "printenv", "REDLOCK_NAME"}} {
			f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbTry: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
			code, stdout, stderr := cmdtest.Run(t, f.Socket, args...)
			cmdtest.CheckExit(t, code, 0, stderr, "")
			if got := (<-f.Requests).Names; !slices.Equal(got, want) {
				t.Errorf("%v asked for %q, want %q", args, got, want)
			}
			if stdout != word+"\n" {
				t.Errorf("%v: REDLOCK_NAME is %q, want %q, which other commands take", args, stdout, word)
			}
		}
	}
}

func TestInvalidNames(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{})
	for args, want := range map[string]string{
		"run a, true": `a NAME is empty in "a,"`, "run ,a true": `a NAME is empty in ",a"`, "lock a,,b": `a NAME is empty in "a,,b"`,
		"check ,": `a NAME is empty in ","`, "who ,": `a NAME is empty in ","`,
		"run x%2C,x%2C true": `lock "x%2C,x%2C": NAME: `, "check a,a": `check "a,a": NAME: `,
	} {
		code, _, stderr := cmdtest.Run(t, f.Socket, strings.Fields(args)...)
		cmdtest.CheckExit(t, code, exit.Usage, stderr, "redlock: "+want)
	}
	code, _, stderr := cmdtest.Run(t, f.Socket, "run", "", "true")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, `a NAME is empty in ""`)
	for _, command := range []string{"who", "watch", "force"} {
		code, _, stderr := cmdtest.Run(t, f.Socket, command, "a,b")
		cmdtest.CheckExit(t, code, exit.Usage, stderr, `is about one lock, and "a,b" names 2`)
		cmdtest.CheckExit(t, code, exit.Usage, stderr, "inside a name as %2C")
	}
	if len(f.Requests)+len(f.Looks) > 0 {
		t.Error("the daemon was asked")
	}
}

// Each of several locks excludes other holders. All of them are held, or none.
func TestSeveral(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	holder := cmdtest.Start(t, cmdtest.RoleRedlock, socket, append([]string{"run", "a,b"}, cmdtest.Puppet()...)...)
	holder.AwaitPuppet()
	for args, want := range map[string]int{
		"run -n a true": 1, "run -n b true": 1, "run -n c,b true": 1, "run -n c true": 0, "run -n a%2Cb true": 0,
	} {
		code, _, stderr := cmdtest.Run(t, socket, strings.Fields(args)...)
		cmdtest.CheckExit(t, code, want, stderr, "")
	}
	if _, stdout, _ := cmdtest.Run(t, socket, "list"); !strings.Contains(stdout, "\na,b ") {
		t.Errorf("list shows %q, want a,b", stdout)
	}
	waiter := cmdtest.Start(t, cmdtest.RoleRedlock, socket, "run", "--verbose", "c,b", "true")
	waiter.AwaitStderr(`redlock: lock "c,b": waiting: "b" is held by `)
	waiter.AwaitStderr("place 1 of 1 in the queue of this host")
	script := cmdtest.Start(t, cmdtest.RoleRedlock, socket, "lock", "--verbose", "c,b")
	script.AwaitStderr("place 2 of 2 in the queue of this host")
	holder.WriteLine("exit 0")
	holder.ExpectExit(0)
	waiter.ExpectExit(0)
	script.ExpectExit(0)
}

// Every command shows a comma inside a name as %2C, so that the name stays one.
func TestCommaInName(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	holder := cmdtest.Start(t, cmdtest.RoleRedlock, socket, append([]string{"run", "a%2Cb"}, cmdtest.Puppet()...)...)
	holder.AwaitPuppet()
	for args, want := range map[string]string{
		"list":                    "\na%2Cb ",
		"list --json":             `"lock": "a%2Cb",`,
		"who a%2Cb":               "exclusive",
		"who a%2Cb --json":        `"lock": "a%2Cb",`,
		"who a":                   "free",
		"force --yes --json a":    `"lock": "a",`,
		"force --yes --json x%2C": `"lock": "x%2C",`,
	} {
		if code, stdout, stderr := cmdtest.Run(t, socket, strings.Fields(args)...); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("redlock %s: exit code %d, stderr %q, stdout %q; want %q in it", args, code, stderr, stdout, want)
		}
	}
	holder.WriteLine("exit 0")
	holder.ExpectExit(0)
}

// redlock list names locks that look alike on stderr, also with --all and --json. redlock doctor
// warns of them.
func TestNamesThatLookAlike(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	c := cmdtest.Dial(t, socket)
	for _, name := range []string{"caf\u00e9", "cafe\u0301"} {
		if _, err := c.Lock(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	const text = `"café": 2 locks have names that look alike, in different Unicode forms: "cafe\u0301", "caf\u00e9"`
	for _, args := range [][]string{{"list"}, {"list", "--json"}, {"list", "--all"}, {"list", "--all", "--json"}} {
		code, _, stderr := cmdtest.Run(t, socket, args...)
		cmdtest.CheckExit(t, code, 0, stderr, "redlock: "+text+": let all programs write the name in one form, best in NFC\n")
	}
	if _, stdout, _ := cmdtest.Run(t, socket, "doctor"); !strings.Contains(stdout, text) {
		t.Errorf("doctor prints %q, want %q in it", stdout, text)
	}
}
