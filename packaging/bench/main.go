// Bench compares redlockd with other ways of taking Redlock locks in Go programs. It starts five
// redis-servers and the daemon on this machine. Every contender uses the same five nodes, in short
// alternating slices. It prints one table, and the targets with their results.
//
//	go run .            # everything but the last four, a quarter of an hour or so
//	go run . -quick     # a look, about five minutes
//	go run . -only distinct,one -rounds 9
//	go run . -only contended,hosts,readers,foreign # what waits for a lock, five minutes
//	go run . -rtt 2ms   # over a network of 2 ms, ten minutes
//	go run . -only cost # how long one call keeps a node busy, five minutes
//	go run . -only fleet # up to 50 hosts that want one lock, half an hour
//	go run . -only alternatives -rounds 2 -slice 1s # etcd, ZooKeeper, one Redis, redsync: eight minutes
//
// It needs Linux (it reads /proc) and redis-server in the PATH. It ends by itself, and ends its
// children if it is interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns 0 if everything was measured, whether the targets were reached or not; 1 after an
// error or if a lock was held twice; 64 for usage.
func run(args []string, stdout, stderr io.Writer) int {
	if code, isPart := runPart(args, stdout, stderr); isPart {
		return code
	}
	opts, err := parseOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 64
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends this process at once, and the kernel ends the children

	rep, err := watchedRun(ctx, opts, stderr)
	rep.print(stdout)
	if err == nil && opts.jsonFile != "" {
		err = rep.writeJSON(opts.jsonFile)
	}
	if err == nil && opts.svgFile != "" && rep.Alternatives != nil {
		err = os.WriteFile(opts.svgFile, rep.Alternatives.picture(), 0o644)
	}
	if err != nil {
		fmt.Fprintln(stderr, "bench:", err)
		return 1
	}
	return 0
}

// runPart runs the network, the bare queue or a holder, if this process was started as one of them.
func runPart(args []string, stdout, stderr io.Writer) (code int, isPart bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case delayCommand:
		return runNetwork(args[1:], stdout, stderr), true
	case queueCommand:
		return runQueue(args[1:], stderr), true
	case holderCommand:
		return runHolder(args[1:], stdout, stderr), true
	}
	return 0, false
}

// watchedRun is measureAll with a measurement of other load on the machine.
func watchedRun(ctx context.Context, opts options, logs io.Writer) (*report, error) {
	m, err := watchMachine()
	if err != nil {
		return newReport(opts), err
	}
	rep, err := measureAll(ctx, opts, logs)
	others, watchErr := m.others()
	rep.Others = others
	return rep, errors.Join(err, watchErr)
}

// options is the parsed command line.
type options struct {
	only     []string // parts to run; empty: all
	rounds   int
	slice    time.Duration
	hung     bool
	leases   int
	hold     time.Duration
	share    float64 // share of the leases that the peers hold
	conns    int
	daemon   string        // binary; empty: build it
	before   string        // another binary to compare with; empty: none
	rtt      time.Duration // of the network; 0: none
	rows     []string      // of part network or fleet; empty: all
	hosts    []int         // numbers of hosts in part fleet
	data     string        // directory for the files of the servers in part alternatives
	jsonFile string
	svgFile  string
}

func parseOptions(args []string, stderr io.Writer) (options, error) {
	var o options
	var only, rows, hosts string
	var quick bool
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.BoolVar(&quick, "quick", false, "short slices, two rounds, 20 s of held leases (other flags still count)")
	fs.StringVar(&only, "only", "", "`parts` to run, comma-separated: "+strings.Join(partNames, ", ")+" (default: all but the last four)")
	fs.IntVar(&o.rounds, "rounds", 5, "rounds; in each one every contender has one slice")
	fs.DurationVar(&o.slice, "slice", 2*time.Second, "length of a slice")
	fs.BoolVar(&o.hung, "hung", true, "measure with one node hung, too")
	fs.IntVar(&o.leases, "leases", 50_000, "leases held at once")
	fs.DurationVar(&o.hold, "hold", 2*time.Minute, "how long they are held; half as long again with one node hung")
	fs.Float64Var(&o.share, "share", 0.1, "share of these leases that the peers are measured with")
	fs.IntVar(&o.conns, "conns", 10_000, "idle connections")
	fs.StringVar(&o.daemon, "daemon", "", "redlockd `binary`; built from this checkout if not given")
	fs.StringVar(&o.before, "before", "", "an earlier redlockd `binary`, measured side by side with the other (parts one, distinct, same, contended, cost, fleet and network)")
	fs.DurationVar(&o.rtt, "rtt", 0, "round `trip` of a network between everybody and the nodes: measures part network, and nothing else")
	fs.StringVar(&rows, "rows", "", "rows of a part to measure, comma-`separated`; of part network: "+strings.Join(networkRowNames(), ", ")+"; of part fleet: "+strings.Join(fleetRowNames, ", "))
	fs.StringVar(&hosts, "hosts", "", "`numbers` of hosts in part fleet, comma-separated (default 1,2,5,10,20,30,50)")
	fs.StringVar(&o.data, "data", memoryDir(), "`directory` for the files of the servers in part alternatives, but for one row that uses TMPDIR")
	fs.StringVar(&o.svgFile, "svg", "", "`file` for a picture of part alternatives")
	fs.StringVar(&o.jsonFile, "json", "", "`file` to write the results to as JSON")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if quick {
		o.shorten(fs)
	}
	return o, o.check(only, rows, hosts, fs.Args())
}

// memoryDir returns a directory in memory, or that for temporary files.
func memoryDir() string {
	const memory = "/dev/shm"
	if _, err := os.Stat(memory); err != nil {
		return os.TempDir()
	}
	return memory
}

// shorten sets the values of -quick for all flags that were not given.
func (o *options) shorten(fs *flag.FlagSet) {
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	set := func(name string, do func()) {
		if !given[name] {
			do()
		}
	}
	set("rounds", func() { o.rounds = 2 })
	set("slice", func() { o.slice = 500 * time.Millisecond })
	set("hold", func() { o.hold = 20 * time.Second })
	set("share", func() { o.share = 0.02 })
}

func (o *options) check(only, rows, hosts string, rest []string) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for part := range strings.SplitSeq(only, ",") {
		switch {
		case part == "":
		case !isPart(part):
			fault("-only %s: want some of %s", part, strings.Join(partNames, ", "))
		default:
			o.only = append(o.only, part)
		}
	}
	known := networkRowNames()
	if slices.Equal(o.only, []string{fleetPart}) {
		known = fleetRowNames
	} else if rows != "" && o.rtt == 0 {
		fault("-rows is of part network, which needs -rtt, or of -only %s", fleetPart)
	}
	for row := range strings.SplitSeq(rows, ",") {
		switch {
		case row == "":
		case !slices.Contains(known, row):
			fault("-rows %s: want some of %s", row, strings.Join(known, ", "))
		default:
			o.rows = append(o.rows, row)
		}
	}
	o.hosts = fleetHosts
	if hosts != "" {
		o.hosts = nil
		for text := range strings.SplitSeq(hosts, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > mostHosts || len(o.hosts) > 0 && n <= o.hosts[len(o.hosts)-1] {
				fault("-hosts %s: want increasing numbers from 1 to %d", hosts, mostHosts)
				break
			}
			o.hosts = append(o.hosts, n)
		}
	}
	if o.rtt < 0 || o.rtt > 100*time.Millisecond {
		fault("-rtt %v: want at most 100ms", o.rtt)
	}
	if networked := slices.Contains(o.only, networkPart); networked != (o.rtt > 0) && len(o.only) > 0 || networked && len(o.only) > 1 {
		fault("-rtt and part %s need each other, and go with no other part", networkPart)
	}
	if len(rest) > 0 {
		fault("unexpected argument %q", rest[0])
	}
	if o.rounds < 1 || o.rounds > 100 {
		fault("-rounds %d: want 1 to 100", o.rounds)
	}
	if o.slice < 10*time.Millisecond || o.slice > time.Minute {
		fault("-slice %v: want 10ms to 1m", o.slice)
	}
	if o.hold < time.Second || o.hold > time.Hour {
		fault("-hold %v: want 1s to 1h", o.hold)
	}
	if o.leases < 1 || o.leases > maxLeases {
		fault("-leases %d: want 1 to %d", o.leases, maxLeases)
	}
	if o.conns < 1 || o.conns > maxConns {
		fault("-conns %d: want 1 to %d", o.conns, maxConns)
	}
	if o.share <= 0 || o.share > 1 {
		fault("-share %v: want more than 0, at most 1", o.share)
	}
	return errors.Join(faults...)
}
