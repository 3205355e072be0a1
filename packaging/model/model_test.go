package model

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
)

// holds is the verdict of a model whose properties hold within its bounds.
const holds = "holds"

// The properties, each with a part of its assertion that no other has, without spaces.
const (
	oneHolder     = "deadline[0]>0"
	staleWrite    = "order[d]>=written"
	forgetfulVote = "owes[n]==0"
	tokenOrder    = "fence[d]>above[d]"
	tokenUnique   = "used&"
	becomesFree   = "over[key"
	exactForce    = "answered&"
	lateExtension = "late&" // FORCE is exact, too
	apart         = "reading==0"
	countedShared = "member["
	staysShared   = "downgradedOn&"
	nothingStays  = "claimed"
	backOrder     = "fence>largest" // token order
	finalUndo     = "lateUndos==undos"
)

// checks lists what each model shows. A check is exhaustive within its bounds.
var checks = []struct {
	name  string
	model string
	flags string // definitions for spin
	want  string // holds, or the property that is violated
	long  bool   // takes up to minutes and gigabytes, so only with REDLOCKD_LONG
	stops bool   // has too many states for memory: the search ends after stopAfter, without a verdict
}{
	{name: "single Redis", model: "single", want: holds},
	{name: "single Redis restarts empty", model: "single", flags: "CRASHES=1", want: oneHolder},
	{name: "single Redis fails over", model: "single", flags: "FAILOVERS=1", want: oneHolder},
	{name: "single Redis clock jumps", model: "single", flags: "JUMPS=1", want: oneHolder},
	{name: "single Redis holder pauses", model: "single", flags: "PAUSES=1", want: staleWrite},

	{name: "Redlock", model: "redlock", flags: "TTL=1", want: holds},
	{name: "Redlock node stays away", model: "redlock", flags: "CRASHES=1 NO_RESTART=1 TTL=1", want: holds, long: true},
	{name: "Redlock node restarts empty", model: "redlock", flags: "CRASHES=1 TTL=1", want: oneHolder, long: true},
	{name: "Redlock clock jumps", model: "redlock", flags: "JUMPS=1 TTL=1", want: oneHolder, long: true},
	{name: "Redlock holder pauses", model: "redlock", flags: "PAUSES=1 TTL=1", want: staleWrite},

	{name: "redlockd", model: "redlockd", flags: "ATTEMPTS=2 TTL=1", want: holds},
	{name: "redlockd hands over", model: "redlockd", flags: "ATTEMPTS=2 HANDOVER=1 TTL=1", want: holds, long: true},
	{name: "redlockd extends and repairs", model: "redlockd", flags: "ATTEMPTS=2 EXTENDS=1 TTL=1", want: holds, long: true},
	{name: "redlockd FORCE", model: "redlockd", flags: "ATTEMPTS=2 FORCES=1 TTL=1", want: holds, long: true},
	{name: "redlockd clock jumps", model: "redlockd", flags: "ATTEMPTS=2 JUMPS=1 TTL=1", want: holds, long: true},
	{name: "redlockd daemon dies", model: "redlockd", flags: "ATTEMPTS=1 DEATHS=1 FREE", want: holds},
	{name: "redlockd node loses its data", model: "redlockd", flags: "ATTEMPTS=1 CRASHES=1", want: holds},

	{name: "redlockd passes", model: "redlockd", flags: "ATTEMPTS=1 PASSES=1 EXTENDS=1 FORCES=1 TTL=1", want: holds},
	{name: "redlockd exchanges", model: "redlockd", flags: "ATTEMPTS=1 EXCHANGES=1 EXTENDS=2 FORCES=1", want: holds, long: true},
	{name: "redlockd exchanges, shorter", model: "redlockd", flags: "ATTEMPTS=1 EXCHANGES=1 EXTENDS=1 FORCES=1 TTL=1", want: holds},
	{name: "redlockd exchanges and hands over", model: "redlockd", flags: "EXCHANGES=1 EXTENDS=1 HANDOVER=1 TTL=1 PATIENT", want: holds, long: true},
	{name: "redlockd downgrades", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 ROLES PATIENT", want: holds, long: true},

	{name: "redlockd quorum of one", model: "redlockd", flags: "MINORITY", want: tokenOrder},
	{name: "redlockd late start", model: "redlockd", flags: "LATE_START", want: oneHolder},
	{name: "redlockd blind release", model: "redlockd", flags: "ATTEMPTS=3 BLIND_RELEASE TTL=1 PATIENT", want: oneHolder, long: true},
	{name: "redlockd no epoch", model: "redlockd", flags: "CRASHES=1 NO_EPOCH TTL=1 PATIENT", want: forgetfulVote},
	{name: "redlockd no quarantine", model: "redlockd", flags: "CRASHES=1 NO_QUARANTINE", want: forgetfulVote, long: true},
	{name: "redlockd short quarantine", model: "redlockd", flags: "CRASHES=1 SHORT_QUARANTINE", want: forgetfulVote, long: true},
	{name: "redlockd no write-back", model: "redlockd", flags: "ATTEMPTS=3 NO_WRITE_BACK TTL=1", want: tokenUnique, long: true},
	{name: "redlockd blind FORCE", model: "redlockd", flags: "ATTEMPTS=3 FORCES=1 BLIND_FORCE TTL=1 PATIENT", want: oneHolder, long: true},
	{name: "redlockd no not-after", model: "redlockd", flags: "ATTEMPTS=1 DEATHS=1 FREE NO_NOT_AFTER", want: becomesFree},
	{name: "redlockd window from the answer", model: "redlockd", flags: "PASSES=1 FORCES=1 WINDOW_FROM_ANSWER", want: exactForce},
	{name: "redlockd hasty FORCE", model: "redlockd", flags: "PASSES=1 FORCES=1 TTL=1 HASTY_FORCE", want: exactForce},
	{name: "redlockd start of the block written back", model: "redlockd", flags: "PASSES=1 TTL=1 START_WRITE_BACK", want: tokenOrder},
	{name: "redlockd release forgets the former token", model: "redlockd", flags: "EXCHANGES=1 EXTENDS=1 TTL=1 FORGETS_FORMER", want: nothingStays},
	{name: "redlockd hand-over forgets the former token", model: "redlockd", flags: "EXCHANGES=1 EXTENDS=1 HANDOVER=1 TTL=1 HANDS_OVER_NEW", want: nothingStays},
	{name: "redlockd exchanges again", model: "redlockd", flags: "EXCHANGES=2 EXTENDS=2 TTL=1 EXCHANGES_AGAIN", want: nothingStays},
	{name: "redlockd release overtakes", model: "redlockd", flags: "EXCHANGES=1 EXTENDS=1 TTL=1 RELEASE_OVERTAKES", want: nothingStays},
	{name: "redlockd blind exchange", model: "redlockd", flags: "ATTEMPTS=3 EXCHANGES=1 EXTENDS=1 TTL=1 PATIENT BLIND_EXCHANGE", want: oneHolder, long: true},
	{name: "redlockd exchange in spite of FORCE", model: "redlockd", flags: "ATTEMPTS=1 EXCHANGES=1 EXTENDS=2 FORCES=1 EXCHANGE_FORCED", want: lateExtension, long: true},
	{name: "redlockd early repair in an exchange", model: "redlockd", flags: "ATTEMPTS=1 EXCHANGES=1 EXTENDS=2 FORCES=1 REPAIRS_EARLY", want: lateExtension, long: true},
	{name: "redlockd reader on a minority", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 ROLES PATIENT READER_MINORITY", want: apart},
	{name: "redlockd writer beside readers", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 WRITER_JOINS", want: apart, long: true},
	{name: "redlockd holder writes on", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 ROLES WRITES_ON", want: apart, long: true},
	{name: "redlockd failed downgrade is exclusive", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 ROLES WRITES_AGAIN", want: apart, long: true},
	{name: "redlockd downgrade by a minority", model: "redlockd", flags: "DOWNGRADES=1 TTL=1 DOWNGRADE_MINORITY", want: countedShared},
	{name: "redlockd downgrade asked for once", model: "redlockd", flags: "DOWNGRADES=1 EXTENDS=1 TTL=1 ASKS_ONCE", want: countedShared},
	{name: "redlockd repaired as exclusive", model: "redlockd", flags: "DOWNGRADES=1 EXTENDS=1 JUMPS=1 TTL=1 REPAIR_EXCLUSIVE", want: staysShared},
	{name: "redlockd downgraded lease passed on", model: "redlockd", flags: "DOWNGRADES=1 PASSES=1 TTL=1 ROLES PASSES_SHARED", want: tokenOrder, long: true},
	{name: "redlockd passes, clock jumps", model: "redlockd", flags: "PASSES=1 JUMPS=1 TTL=1", want: tokenOrder, long: true}, // the limit of passing: see ALGORITHM.md
	{name: "redlockd counters not copied", model: "redlockd", flags: "CRASHES=1 NO_COPY TTL=1 PATIENT", want: tokenOrder, long: true},
	{name: "redlockd counters copied early", model: "redlockd", flags: "CRASHES=1 EARLY_COPY TTL=1 PATIENT", want: tokenOrder, long: true},
	{name: "redlockd blind write-back after FORCE", model: "redlockd", flags: "ATTEMPTS=3 FORCES=1 BLIND_WRITE_BACK TTL=1 PATIENT", want: tokenUnique, long: true},
	{name: "redlockd blind write-back after a jump", model: "redlockd", flags: "ATTEMPTS=3 JUMPS=1 BLIND_WRITE_BACK TTL=1 PATIENT", want: tokenUnique, long: true},
	{name: "redlockd blind write-back alone", model: "redlockd", flags: "ATTEMPTS=3 BLIND_WRITE_BACK TTL=1", want: holds, long: true}, // needs a key that disappears

	{name: "nodes one to three", model: "nodes", want: holds, long: true},
	{name: "nodes one to another", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 EXTENDS=2", want: holds, long: true},
	{name: "nodes three to three others", model: "nodes", flags: "NODES=6 OLD_LIST=7 NEW_LIST=56 ROLES", want: holds, long: true},
	{name: "nodes fencing", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 FENCES=1", want: holds, long: true},
	{name: "nodes old node loses its data", model: "nodes", flags: "NODES=4 OLD_LIST=7 NEW_LIST=8 CRASHES=1 ROLES", want: holds, long: true},
	{name: "nodes new node loses its data", model: "nodes", flags: "LATER=1 ROLES", want: holds},
	{name: "nodes only old node loses its data", model: "nodes", flags: "CRASHES=1 ROLES", want: oneHolder}, // the limit: a daemon that slept sees an empty node
	{name: "nodes joint majority of the union", model: "nodes", flags: "NEW_LIST=6 UNION", want: oneHolder, long: true},
	{name: "nodes new without the wait", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 NO_WAIT", want: oneHolder},
	{name: "nodes old to new at once", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 SKIPS", want: oneHolder},
	{name: "nodes evidence from a restarted node", model: "nodes", flags: "NODES=4 OLD_LIST=7 NEW_LIST=8 CRASHES=1 ROLES RESTARTED_EVIDENCE", want: oneHolder},
	{name: "nodes evidence from different times", model: "nodes", flags: "NODES=4 OLD_LIST=7 NEW_LIST=8 CRASHES=1 ROLES SCATTERED", want: oneHolder},
	{name: "nodes stage not copied", model: "nodes", flags: "NODES=4 OLD_LIST=7 NEW_LIST=8 CRASHES=1 ROLES NO_STAGE_COPY", want: oneHolder},
	{name: "nodes counters not copied", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 FENCES=1 NO_COUNTERS", want: tokenOrder},
	{name: "nodes counters copied early", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 FENCES=1 EARLY_COUNTERS", want: tokenOrder},

	{name: "nodes change back, both hosts in each stage", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=2", want: holds, long: true},
	{name: "nodes change back, extends", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=2 EXTENDS=1", want: holds, long: true},
	{name: "nodes change back, fencing", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=2 FENCES=1", want: holds, long: true},
	{name: "nodes change back, host that slept", model: "nodes", flags: "CHANGES=2 ROLES", want: holds, long: true},
	{name: "nodes change again", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=3 CONFIGS=5", want: holds, long: true},
	{name: "nodes change again, evidence of the first change", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=3 CONFIGS=5 OLD_EVIDENCE", want: oneHolder},
	{name: "nodes change again, late write, no not-after", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=3 CONFIGS=5 LATE=1 NO_NOT_AFTER", want: holds, long: true}, // the number is enough
	{name: "nodes change again, late write, no number", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CHANGES=3 CONFIGS=5 LATE=1 NO_NOT_AFTER NO_NUMBER", want: oneHolder, long: true},
	{name: "nodes undo", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 LATE=1 UNDOS=1", want: holds, long: true},
	{name: "nodes undo, late commit", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 LATE=1 UNDOS=1 ATTEMPTS=0 NO_NOT_AFTER", want: finalUndo},
	{name: "nodes replaced list, only old node loses its data", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CRASHES=1 LATE=1 ROLES AWAKE", want: holds},
	{name: "nodes replaced list, late write, no not-after", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CRASHES=1 LATE=1 ROLES AWAKE NO_NOT_AFTER", want: oneHolder},
	{name: "nodes replaced list taken for new", model: "nodes", flags: "NODES=2 OLD_LIST=1 NEW_LIST=2 CRASHES=1 LATE=1 ROLES AWAKE NOT_REPLACED", want: oneHolder},

	{name: "nodes there and back", model: "back", flags: "CHANGES=2 CONFIGS=4", want: holds},
	{name: "nodes there and back, and again", model: "back", want: holds},
	{name: "nodes there and back, fencing", model: "back", flags: "GRANTS=3 CHANGES=2 CONFIGS=4", want: holds, long: true},
	{name: "nodes there and back, and again, fencing", model: "back", flags: "GRANTS=3", want: holds, long: true},
	{name: "nodes late write", model: "back", flags: "LATE=1 CONFIGS=5", want: holds, long: true},
	{name: "nodes late write, no number", model: "back", flags: "LATE=1 CONFIGS=5 NO_NUMBER", want: oneHolder},
	{name: "nodes node of A loses its data", model: "back", flags: "CRASHES=1 CHANGES=2 CONFIGS=4", want: holds},
	{name: "nodes late host, nodes that left lose their data", model: "back", flags: "CRASHES=2 CHANGES=2 CONFIGS=4", want: holds},
	{name: "nodes late host forgets a refusal", model: "back", flags: "CRASHES=2 CHANGES=2 CONFIGS=4 FORGETS_REFUSAL", want: oneHolder},
	{name: "nodes late host asks a majority", model: "back", flags: "CRASHES=2 CHANGES=2 CONFIGS=4 ASKS_A_MAJORITY", want: oneHolder},
	{name: "nodes host that does not sleep asks a majority", model: "back", flags: "CRASHES=2 CHANGES=2 CONFIGS=3 ASKS_A_MAJORITY AWAKE", want: holds},
	{name: "nodes new process asks a majority", model: "back", flags: "CRASHES=2 CHANGES=2 CONFIGS=4 ASKS_A_MAJORITY AWAKE", want: oneHolder}, // the limit: it was not refused yet
	{name: "nodes late host, all nodes lose their data", model: "back", flags: "CRASHES=2 LOSSES=1 CHANGES=2 CONFIGS=4", want: oneHolder},     // the limit: it sees empty nodes alone
	{name: "nodes any list shows that it is in use", model: "back", flags: "ANY_WITNESS", want: oneHolder},
	{name: "nodes stage of one other node", model: "back", flags: "CRASHES=1 CHANGES=2 CONFIGS=4 ONE_SOURCE", want: oneHolder},
	{name: "nodes node that is behind keeps its counters", model: "back", flags: "GRANTS=3 CHANGES=2 CONFIGS=4 NO_COUNTERS", want: backOrder},

	{name: "Redlock, longer", model: "redlock", want: holds, long: true},
	{name: "Redlock node stays away, longer", model: "redlock", flags: "CRASHES=1 NO_RESTART=1", want: holds, long: true},
	{name: "redlockd, longer", model: "redlockd", flags: "ATTEMPTS=2", want: holds, long: true},
	{name: "redlockd three attempts", model: "redlockd", flags: "ATTEMPTS=3 TTL=1", want: holds, long: true},
	{name: "redlockd answers are lost", model: "redlockd", flags: "ATTEMPTS=2 LOSSES=2", want: holds, long: true},
	{name: "redlockd hands over, longer", model: "redlockd", flags: "ATTEMPTS=3 HANDOVER=1 TTL=1", want: holds, long: true},
	{name: "redlockd extends, longer", model: "redlockd", flags: "ATTEMPTS=2 EXTENDS=2", want: holds, long: true},
	{name: "redlockd FORCE, longer", model: "redlockd", flags: "ATTEMPTS=2 FORCES=1 EXTENDS=1 TTL=1", want: holds, long: true},
	{name: "redlockd passes, longer", model: "redlockd", flags: "ATTEMPTS=2 PASSES=2 BLOCK=3 TTL=1", want: holds, long: true},
	{name: "redlockd passes and FORCE, longer", model: "redlockd", flags: "ATTEMPTS=2 PASSES=1 FORCES=1", want: holds, stops: true, long: true},
	{name: "redlockd passes and extends, longer", model: "redlockd", flags: "ATTEMPTS=2 PASSES=1 EXTENDS=1 TTL=1", want: holds, long: true},
	{name: "redlockd exchanges, longer", model: "redlockd", flags: "ATTEMPTS=2 EXCHANGES=1 EXTENDS=1 FORCES=1 TTL=1", want: holds, stops: true, long: true},
	{name: "redlockd exchanges and hands over, longer", model: "redlockd", flags: "EXCHANGES=1 EXTENDS=1 HANDOVER=1 TTL=1", want: holds, long: true},
	{name: "redlockd passes and exchanges, longer", model: "redlockd", flags: "ATTEMPTS=2 PASSES=1 EXCHANGES=1 EXTENDS=1 TTL=1", want: holds, long: true},
	{name: "redlockd downgrades, longer", model: "redlockd", flags: "ATTEMPTS=2 DOWNGRADES=1 TTL=1", want: holds, long: true},
	{name: "redlockd downgrades and extends, longer", model: "redlockd", flags: "ATTEMPTS=2 DOWNGRADES=1 EXTENDS=1 TTL=1 ROLES", want: holds, long: true},
	{name: "redlockd downgrades, three attempts", model: "redlockd", flags: "ATTEMPTS=3 DOWNGRADES=1 TTL=1 ROLES", want: holds, stops: true, long: true},
	{name: "redlockd exchanges and downgrades, longer", model: "redlockd", flags: "ATTEMPTS=2 EXCHANGES=1 DOWNGRADES=1 EXTENDS=1 TTL=1 ROLES", want: holds, long: true},
	{name: "redlockd downgrades and FORCE, longer", model: "redlockd", flags: "ATTEMPTS=2 DOWNGRADES=1 FORCES=1 TTL=1 ROLES", want: holds, long: true},
	{name: "redlockd node loses its data, longer", model: "redlockd", flags: "ATTEMPTS=2 CRASHES=1 TTL=1", want: holds, stops: true, long: true},
}

func TestModels(t *testing.T) {
	needSpin(t)
	short := 0 // their number
	for _, check := range checks {
		if !check.long {
			short++
		}
		if check.long && !effort.IsLong() || !effort.Chooses(short) {
			continue
		}
		t.Run(check.name, func(t *testing.T) {
			optimize := "-O2"
			if !check.long {
				optimize = "-O0" // compiling with optimization takes longer than the search
			}
			found := search(t, check.model+".pml", optimize, strings.Fields(check.flags), check.stops)
			t.Logf("measured: %s", found)
			if check.want == holds && found.violated != "" {
				t.Errorf("violated: %s", found.violated)
			} else if check.want != holds && !strings.Contains(strings.ReplaceAll(found.violated, " ", ""), check.want) {
				t.Errorf("this model must violate %s; found: %s", check.want, found)
			}
		})
	}
}

// needSpin skips a test if spin is not installed.
func needSpin(t *testing.T) {
	t.Helper()
	for _, program := range []string{"spin", "cc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian: apt-get install spin gcc libc6-dev)", program)
		}
	}
}

// A result has the outcome of one exhaustive search.
type result struct {
	violated string // the assertion; empty: none
	states   string
	memory   string // megabytes
	seconds  string
}

func (r result) String() string {
	verdict := "all properties hold"
	if r.violated != "" {
		verdict = "violates " + r.violated
	}
	return fmt.Sprintf("%s; %s states, %s MB, %s s", verdict, r.states, r.memory, r.seconds)
}

// Lines that a verifier prints.
var (
	violatedLine = regexp.MustCompile(`pan:1: assertion violated (.*) \(at depth`)
	statesLine   = regexp.MustCompile(`(\d+) states, stored`)
	memoryLine   = regexp.MustCompile(`([\d.]+)\s+total actual memory usage`)
	secondsLine  = regexp.MustCompile(`elapsed time ([\d.]+) seconds`)
	truncated    = regexp.MustCompile(`max search depth too small|out of memory|reached -DMEMLIM|Search not completed`)
)

// stopAfter is the flag of a verifier that ends a search after three minutes.
const stopAfter = "-Q3"

// search lets spin make the verifier of a model, and runs it to its end, or to the first violation.
// A search that did not visit everything fails, unless it may stop.
func search(t *testing.T, model, optimize string, flags []string, stops bool) result {
	t.Helper()
	source, err := filepath.Abs(model)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	generate := []string{"-a"}
	for _, flag := range flags {
		generate = append(generate, "-D"+flag)
	}
	command(t, dir, "spin", append(generate, source)...)
	command(t, dir, "cc", "-w", optimize, "-DSAFETY", "-DCOLLAPSE", "-DNOFAIR", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
	run := []string{"-m100000", "-w24"}
	if stops {
		run = append(run, stopAfter)
	}
	text := command(t, dir, "./pan", run...)
	found := result{violated: first(violatedLine, text), states: first(statesLine, text), memory: first(memoryLine, text), seconds: first(secondsLine, text)}
	if found.states == "" || found.violated == "" && !stops && truncated.MatchString(text) {
		t.Fatalf("the search of %s is not complete:\n%s", model, text)
	}
	return found
}

func first(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// command runs a program in dir and returns its output. A verifier's exit code is meaningless: it
// is 0 after a violation.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	program := exec.CommandContext(t.Context(), name, args...)
	program.Dir = dir
	text, err := program.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}
