package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	exitViolation   = 1
	exitUsage       = 64
	exitUnavailable = 69
)

// options are the flags of one run.
type options struct {
	duration  time.Duration
	seed      uint64
	nodes     int
	daemons   int
	clients   int
	workers   int
	names     int
	gap       time.Duration
	grants    int
	atLeast   int // faults that changed something
	contender string
	binary    string
	other     string // the program of every second daemon; empty: binary
	only      string
	page      string
	record    string
	rivals    int       // client processes that use redsync beside redlockd
	rates     []float64 // of the nodes' clocks, in turn; empty: right
	durable   bool
	tls       bool
	admit     bool
	until     bool
	keep      bool
	inside    bool // this process runs in namespaces of its own
}

// isolated reports whether the run has namespaces, and so can cut networks and fill disks.
func (o *options) isolated() bool { return o.inside }

// quarantines reports whether nodes that lost their data have no vote for a while.
func (o *options) quarantines() bool { return o.contender == "redlockd" && !o.admit }

func main() { os.Exit(start(os.Args[1:], os.Stdout, os.Stderr)) }

func start(args []string, stdout, stderr io.Writer) int {
	if len(args) == 2 && args[0] == clientFlag {
		var client clientArgs
		if err := json.Unmarshal([]byte(args[1]), &client); err != nil {
			fmt.Fprintln(stderr, "nemesis:", err)
			return exitUsage
		}
		return clientMain(client)
	}
	if len(args) == 2 && args[0] == "-check" {
		return checkFile(args[1], stdout, stderr)
	}
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return exitUsage
	}
	if !o.inside && os.Geteuid() == 0 && hasPrograms() {
		return isolate(args, stdout, stderr)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	r, err := runOnce(ctx, *o, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "nemesis:", err)
		return exitUnavailable
	}
	r.print(stdout)
	if o.page != "" {
		if err := r.writePage(o.page); err != nil {
			fmt.Fprintln(stderr, "nemesis:", err)
			return exitUnavailable
		}
	}
	if len(r.violations) > 0 {
		return exitViolation
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*options, error) {
	var o options
	flags := flag.NewFlagSet("nemesis", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&o.duration, "for", time.Minute, "how long faults are made")
	flags.Uint64Var(&o.seed, "seed", 1, "decides which faults are made, and in which order")
	flags.IntVar(&o.nodes, "nodes", 5, "redis-servers")
	flags.IntVar(&o.daemons, "daemons", 3, "daemons, each a host of its own")
	flags.IntVar(&o.clients, "clients", 9, "client processes")
	flags.IntVar(&o.workers, "workers", 20, "workers of each client process")
	flags.IntVar(&o.names, "names", 24, "locks of each kind at any time")
	flags.DurationVar(&o.gap, "gap", 90*time.Millisecond, "mean time between two faults")
	flags.IntVar(&o.grants, "grants", 0, "end the run early, when there were so many grants and -faults; 0: do not")
	flags.IntVar(&o.atLeast, "faults", 0, "faults that changed something, for -grants")
	flags.StringVar(&o.contender, "contender", "redlockd", "what is tested: redlockd, or redsync over the same nodes")
	flags.StringVar(&o.binary, "redlockd", "", "the daemon's program (default: built from this checkout)")
	flags.StringVar(&o.other, "other", "", "the program of every second daemon, such as an earlier release (default: as -redlockd)")
	flags.StringVar(&o.only, "only", "", "make only faults whose name contains this")
	flags.StringVar(&o.page, "page", "", "also write the figures to this file, as Markdown")
	flags.StringVar(&o.record, "record", "", "also write the history to this `file`, compressed if its name ends in .gz")
	flags.String("check", "", "only check the history in this `file`, and make no run; no other flag is allowed")
	flags.IntVar(&o.rivals, "rivals", 0, "so many of the client processes use redsync on the same names, and faults that lose data are left out")
	flags.Func("rates", "the nodes' clocks run at these rates in turn, comma-`separated`: 1.009,0.991 is 0.9 % fast and slow", func(text string) error {
		for one := range strings.SplitSeq(text, ",") {
			rate, err := strconv.ParseFloat(one, 64)
			if err != nil || rate < 0.5 || rate > 2 {
				return fmt.Errorf("%q is no rate between 0.5 and 2", one)
			}
			o.rates = append(o.rates, rate)
		}
		return nil
	})
	flags.BoolVar(&o.durable, "durable", false, "all nodes are durable: they sync before they answer, vote at once after a restart, and lose power")
	flags.BoolVar(&o.tls, "tls", false, "the daemons use TLS, and certificates expire")
	flags.BoolVar(&o.admit, "admit", false, "an operator ADMITs every node at once, which redlockd warns of: no quarantine")
	flags.BoolVar(&o.until, "until-violation", false, "end the run with the first violation")
	flags.BoolVar(&o.keep, "keep", false, "keep the logs of nodes, daemons and faults (after a violation they are kept in any case)")
	flags.BoolVar(&o.inside, "inside", false, "namespaces are there already (set by the nemesis itself)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 || o.contender != "redlockd" && o.contender != "redsync" || min(o.nodes, o.daemons, o.clients, o.workers, o.names) < 1 || o.gap <= 0 ||
		o.rivals < 0 || o.rivals > 0 && (o.rivals >= o.clients || o.contender != "redlockd") || flags.Lookup("check").Value.String() != "" {
		flags.Usage()
		return nil, errors.New("usage")
	}
	return &o, nil
}

// hasPrograms reports whether the programs for cutting networks are installed.
func hasPrograms() bool {
	return !slices.ContainsFunc([]string{"ip", "nft"}, func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}

// isolate runs the nemesis again, in its own network and mount namespaces.
func isolate(args []string, stdout, stderr io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(stderr, "nemesis:", err)
		return exitUnavailable
	}
	again := exec.Command(self, append(slices.Clone(args), "-inside")...)
	again.Stdout, again.Stderr = stdout, stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	signals := make(chan os.Signal, 1) // the other process gets the signals too, and this one ends with it
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := again.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() >= 0 {
			return exit.ExitCode()
		}
		fmt.Fprintln(stderr, "nemesis: a process with namespaces of its own:", err)
		return exitUnavailable
	}
	return 0
}

// runOnce makes one run and checks its history.
func runOnce(ctx context.Context, o options, stderr io.Writer) (*report, error) {
	w, err := newWorld(ctx, o)
	if w != nil {
		defer w.close()
	}
	if err != nil {
		return nil, err
	}
	started := time.Now()
	stop := make(chan struct{})
	var beside sync.WaitGroup
	if o.admit {
		for _, d := range w.daemons {
			beside.Go(func() { admitAlways(d, stop) })
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := newSchedule(w)
	if len(s.kinds) == 0 {
		return nil, fmt.Errorf("no kind of fault that can be made here has %q in its name", o.only)
	}
	v := &verdict{world: w, schedule: s, out: stderr}
	beside.Go(func() { v.watch(stop, cancel) })
	beside.Go(func() {
		select {
		case <-time.After(o.duration):
		case <-ctx.Done():
		}
		close(stop)
	})
	err = s.run(stop)
	if died := w.ended(); died != nil {
		return nil, fmt.Errorf("after %v: %w", time.Since(started).Round(time.Second), died)
	}
	if err != nil {
		return nil, fmt.Errorf("after %v: %w", time.Since(started).Round(time.Second), err)
	}
	beside.Wait()
	var found []violation
	if o.contender == "redlockd" && !o.until && !o.admit {
		found = w.awaitCalm(ctx)
	}
	w.finishClients()
	for _, c := range w.clients {
		if c.fault != nil {
			return nil, c.fault
		}
	}
	took := time.Since(started)
	if err := errors.Join(v.finish(), w.record.finish()); err != nil {
		return nil, err
	}
	var did workCount
	if w.store != nil {
		s := newStore(w.store.Addr())
		defer s.db.Close()
		if did, err = s.count(context.WithoutCancel(ctx)); err != nil {
			return nil, fmt.Errorf("read the store: %w", err)
		}
	}
	if err := v.add(append(append(found, w.failed...), did.violations()...)); err != nil {
		return nil, err
	}
	return &report{options: o, server: serverVersion(w.nodes[0]), took: took, checking: time.Since(started) - took, faults: s.counts,
		history: w.history, did: did, calmest: w.calmest, locks: v.locks, violations: v.violations, dir: w.dir}, nil
}

// admitAlways ends every quarantine at once.
func admitAlways(d *daemon, stop <-chan struct{}) {
	for {
		_, _ = d.ask("ADMIT all") // the daemon may be down
		select {
		case <-stop:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
