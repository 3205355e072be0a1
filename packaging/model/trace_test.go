package model

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest"
	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
	"github.com/redlockd/redlockd/redlock/redlocktest/simulation"
)

// The model allows what the code did, in each of many simulations.
func TestTraces(t *testing.T) {
	needSpin(t)
	counts := map[string]int{}
	seeds, steps := uint64(effort.Rounds(2, 25)), 0
	for seed := range seeds {
		v := validate(t, record(t, seed, simulation.Plan{}), "")
		if !v.accepted {
			t.Errorf("seed %d: the model does not allow what the code did: %s", seed, v)
		}
		steps += len(v.trace)
		for _, s := range v.trace {
			counts[strings.TrimSuffix(string(s.What)+" "+callOf[s.Op], " 0")]++
		}
	}
	t.Logf("measured: %d traces with %d steps", seeds, steps)
	for what, name := range nameOf {
		kinds := []string{string(what)}
		if name == "EXECUTES" {
			kinds = []string{"executes", "executes ACQUIRE", "executes RAISE", "executes EXTENSION", "executes REPAIR", "executes NOTE", "executes FORCE"}
		}
		for _, kind := range kinds {
			t.Logf("%9d  %s", counts[kind], kind)
			if seeds > 20 && counts[kind] == 0 {
				t.Errorf("no trace has the step %q", kind)
			}
		}
	}
}

// A mistake in the code is a step that the model does not have.
func TestTracesFindMistakesInCode(t *testing.T) {
	needSpin(t)
	for _, mistake := range []struct {
		name    string
		variant simredis.Variant
		options func(*redlock.Options)
		short   bool
	}{
		{name: "DEL without comparing", variant: simredis.ReleaseBlindly, short: true},
		{name: "no quarantine", options: func(o *redlock.Options) { o.NoQuarantine = true }},
		{name: "epoch not compared", variant: simredis.IgnoreEpoch},
		{name: "extension that sets a key", variant: simredis.ExtendSets},
	} {
		if !effort.IsLong() && !mistake.short {
			continue
		}
		t.Run(mistake.name, func(t *testing.T) {
			p := simulation.Plan{
				Sim: func(s *redlocktest.Sim) {
					if mistake.variant != "" {
						s.Plant(mistake.variant)
					}
				},
				Options: func(o *redlock.Options, _ func(string, time.Duration) time.Duration) {
					if mistake.options != nil {
						mistake.options(o)
					}
				},
			}
			mustRefuse(t, p, "")
		})
	}
}

// If a rule of the model changes, it does not allow what the code does.
func TestTracesFindMistakesInModel(t *testing.T) {
	needSpin(t)
	for _, mistake := range []struct {
		flag  string
		short bool
	}{{"BLIND_RELEASE", true}, {"NO_WRITE_BACK", false}, {"MINORITY", false}} {
		if !effort.IsLong() && !mistake.short {
			continue
		}
		t.Run(mistake.flag, func(t *testing.T) { mustRefuse(t, simulation.Plan{}, mistake.flag) })
	}
}

// mustRefuse fails the test if the model accepts each trace. flag is a mistake of the model.
func mustRefuse(t *testing.T, p simulation.Plan, flag string) {
	t.Helper()
	for seed := range uint64(effort.Rounds(6, 40)) {
		if v := validate(t, record(t, seed, p), flag); !v.accepted {
			t.Logf("seed %d: %s", seed, v)
			return
		}
	}
	t.Error("the model accepts each trace")
}

// record simulates a plan, and returns what the code did.
func record(t *testing.T, seed uint64, p simulation.Plan) []simulation.Step {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that a seed mostly repeats its trace
	p.Scene, p.Loss = simulation.Traced, true
	p.Seed = seed + seed/7 + 1 // every eighth lets a quorum lose its data, which the model does not have
	return simulation.Simulate(t, p).Steps
}

// A verdict is what spin says of a trace.
type verdict struct {
	trace    []simulation.Step
	accepted bool
	violated string // another assertion, on the way of the trace
	taken    int    // how many steps the model can take, if it does not accept the trace
	states   string
}

func (v verdict) String() string {
	switch {
	case v.accepted:
		return fmt.Sprintf("accepted: %d steps, %s states", len(v.trace), v.states)
	case v.violated != "":
		return "violates " + v.violated
	}
	var b strings.Builder
	fmt.Fprintf(&b, "step %d of %d has no counterpart:", v.taken+1, len(v.trace))
	for i := max(0, v.taken-30); i <= v.taken; i++ {
		fmt.Fprintf(&b, "\n\t%v", v.trace[i])
	}
	return b.String()
}

// validate lets spin search a run of the model that takes each step of the trace. flag plants a mistake in the
// model; "" means none.
func validate(t *testing.T, trace []simulation.Step, flag string) verdict {
	t.Helper()
	source, err := filepath.Abs("trace.pml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text, firstLine := promela(source, trace, flag)
	if err := os.WriteFile(filepath.Join(dir, "trace.pml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, dir, "spin", "-a", "trace.pml")
	command(t, dir, "cc", "-w", "-O0", "-DSAFETY", "-DCOLLAPSE", "-DNOFAIR", "-DVECTORSZ=2048", "-o", "pan", "pan.c")
	out := command(t, dir, "./pan", "-E", "-m1000000", "-w18")
	v := verdict{trace: trace, violated: first(violatedLine, out), states: first(statesLine, out)}
	if v.states == "" || v.violated == "" && truncated.MatchString(out) {
		t.Fatalf("the search is not complete:\n%s", out)
	}
	if v.accepted = v.violated == "0"; v.accepted {
		return v
	}
	if line, err := strconv.Atoi(first(unreachedLine, out)); err == nil {
		v.taken = max(line-firstLine-2, 0) // the line of a d_step is the one after it
	}
	return v
}

// unreachedLine is the first line of the trace that the verifier did not load.
var unreachedLine = regexp.MustCompile(`(?s)unreached in proctype Trace\n\ttrace\.pml:(\d+),`)

const (
	traceTicks = 100 // the ttl
	tick       = simulation.TraceTTL / traceTicks
)

// promela returns the model with a process that loads the steps of a trace, and the line of the first one.
func promela(model string, trace []simulation.Step, flag string) (text string, firstLine int) {
	var b strings.Builder
	fmt.Fprintf(&b, "#define TTL %d\n", traceTicks)
	b.WriteString("#define ATTEMPTS 29\n#define EXTENDS 255\n#define FORCES 255\n#define CRASHES 1\n#define EXCHANGES 1\n#define LOSSES 1\n")
	if flag != "" {
		fmt.Fprintf(&b, "#define %s\n", flag)
	}
	fmt.Fprintf(&b, "#include \"%s\"\n\nactive proctype Trace() {\n", model)
	firstLine = strings.Count(b.String(), "\n") + 1
	for _, s := range trace {
		b.WriteString("\t" + load(&s, trace[0].At) + ";\n")
	}
	b.WriteString("\tstep == 0 -> assert(false)\n}\n")
	return b.String(), firstLine
}

// load returns the statement that loads a step.
func load(s *simulation.Step, begin time.Duration) string {
	name, call := nameOf[s.What], callOf[s.Op]
	if s.Op == 'r' {
		name = "RELEASES_TOKEN"
	}
	bit := map[bool]int{true: 1}
	return fmt.Sprintf("STEP(%s, %d, %d, %d, %s, %d, %d, %d, %d, %d)",
		name, s.Host, s.Node, s.Token, call, bit[s.Vote], bit[s.Done], s.Fence, s.Left/tick, (s.At-begin)/tick)
}

// nameOf has the names of steps in trace.pml.
var nameOf = map[simulation.StepKind]string{
	simulation.Began: "BEGINS", simulation.Failed: "FAILS", simulation.Granted: "GRANTS", simulation.Extends: "EXTENDS_LEASE",
	simulation.Extended: "EXTENDED_LEASE", simulation.NotMoved: "EXTENSION_FAILS", simulation.Released: "STOPS", simulation.Forces: "FORCES_LOCK",
	simulation.Answered: "FORCE_ANSWERED", simulation.Executed: "EXECUTES", simulation.LostData: "LOSES_DATA", simulation.Marked: "MARKS",
	simulation.Admitted: "ADMITS", simulation.Reads: "READS_COUNTERS",
}

// callOf has the names of operations in redlockd.pml.
var callOf = map[rune]string{0: "0", 'r': "0", 'a': "ACQUIRE", 'f': "RAISE", 'e': "EXTENSION", 'p': "REPAIR", 'z': "NOTE", 'x': "FORCE"}
