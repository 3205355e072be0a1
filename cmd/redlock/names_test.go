package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

func TestSplitNames(t *testing.T) {
	for word, want := range map[string][]string{
		"job": {"job"}, "a,b": {"a", "b"}, "a%2Cb": {"a,b"}, "a%2Cb,c": {"a,b", "c"}, "100%": {"100%"},
	} {
		got, err := splitNames(word)
		if err != nil || !slices.Equal(got, want) || joinNames(got...) != word {
			t.Errorf("%q names %q (%v), and these are %q; want %q, and back", word, got, err, joinNames(got...), want)
		}
	}
}

// The daemon is asked for all names that stand between commas.
func TestRequestOfSeveral(t *testing.T) {
	t.Parallel()
	for word, want := range map[string][]string{
		"job": {"job"}, "a,b": {"a", "b"}, "a%2Cb": {"a,b"}, "accounts/4,x%2Cy": {"accounts/4", "x,y"},
	} {
		for _, args := range [][]string{{"run", word, "printenv", "REDLOCK_NAME"}, {"run", "-n", word, "printenv", "REDLOCK_NAME"}, {"run", "-w", "9", word, "printenv", "REDLOCK_NAME"}} {
			f := startFake(t, answers{ipc.VerbLock: grants(time.Minute), ipc.VerbTry: grants(time.Minute), ipc.VerbUnlock: says("OK")})
			code, stdout, stderr := redlock(t, f.socket, args...)
			check(t, code, 0, stderr, "")
			if got := (<-f.requests).Names; !slices.Equal(got, want) {
				t.Errorf("%v asked for %q, want %q", args, got, want)
			}
			if stdout != word+"\n" {
				t.Errorf("%v: REDLOCK_NAME is %q, want %q, which other commands take", args, stdout, word)
			}
		}
	}
}

func TestNamesThatCannotBe(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{})
	for args, want := range map[string]string{
		"run a, true": `a NAME is empty in "a,"`, "run ,a true": `a NAME is empty in ",a"`, "lock a,,b": `a NAME is empty in "a,,b"`,
		"check ,": `a NAME is empty in ","`, "who ,": `a NAME is empty in ","`,
		"run x%2C,x%2C true": `lock "x%2C,x%2C": NAME: `, "check a,a": `check "a,a": NAME: `,
	} {
		code, _, stderr := redlock(t, f.socket, strings.Fields(args)...)
		check(t, code, exitUsage, stderr, "redlock: "+want)
	}
	code, _, stderr := redlock(t, f.socket, "run", "", "true")
	check(t, code, exitUsage, stderr, `a NAME is empty in ""`)
	for _, command := range []string{"who", "watch", "force"} {
		code, _, stderr := redlock(t, f.socket, command, "a,b")
		check(t, code, exitUsage, stderr, `is about one lock, and "a,b" names 2`)
		check(t, code, exitUsage, stderr, "written %2C")
	}
	if len(f.requests)+len(f.looks) > 0 {
		t.Error("the daemon was asked")
	}
}

// Of several locks each excludes others, and they are held, or not, together.
func TestSeveral(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	holder := start(t, roleRedlock, socket, append([]string{"run", "a,b"}, puppet()...)...)
	holder.up()
	for args, want := range map[string]int{
		"run -n a true": 1, "run -n b true": 1, "run -n c,b true": 1, "run -n c true": 0, "run -n a%2Cb true": 0,
	} {
		code, _, stderr := redlock(t, socket, strings.Fields(args)...)
		check(t, code, want, stderr, "")
	}
	if _, stdout, _ := redlock(t, socket, "list"); !strings.Contains(stdout, "\na,b ") {
		t.Errorf("list shows %q, want a,b", stdout)
	}
	waiter := start(t, roleRedlock, socket, "run", "--verbose", "c,b", "true")
	waiter.awaitSaid(`redlock: lock "c,b": waiting: "b" is held by `)
	waiter.awaitSaid("place 1 of 1 in the queue of this host")
	script := start(t, roleRedlock, socket, "lock", "--verbose", "c,b")
	script.awaitSaid("place 2 of 2 in the queue of this host")
	holder.tell("exit 0")
	holder.ends(0)
	waiter.ends(0)
	script.ends(0)
}

// A comma that belongs to a name is one name, wherever it is shown.
func TestCommaInName(t *testing.T) {
	t.Parallel()
	_, socket := startDaemon(t)
	holder := start(t, roleRedlock, socket, append([]string{"run", "a%2Cb"}, puppet()...)...)
	holder.up()
	for args, want := range map[string]string{
		"list":                    "\na%2Cb ",
		"list --json":             `"lock": "a%2Cb",`,
		"who a%2Cb":               "exclusive",
		"who a%2Cb --json":        `"lock": "a%2Cb",`,
		"who a":                   "free",
		"force --yes --json a":    `"lock": "a",`,
		"force --yes --json x%2C": `"lock": "x%2C",`,
	} {
		if code, stdout, stderr := redlock(t, socket, strings.Fields(args)...); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("redlock %s: exit code %d, stderr %q, stdout %q; want %q in it", args, code, stderr, stdout, want)
		}
	}
	holder.tell("exit 0")
	holder.ends(0)
}
