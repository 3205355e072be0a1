package main

import "fmt"

// findContention returns the row of a contender in a part.
func (r *report) findContention(part, contender string) (contentionRow, bool) {
	for _, one := range r.Contention {
		if one.Part == part && one.Contender == contender {
			return one, true
		}
	}
	return contentionRow{}, false
}

func atLeast(what string, got, want float64, unit string) target {
	return target{What: what, Want: fmt.Sprintf("≥ %v%s", want, unit), Got: fmt.Sprintf("%.2f%s", got, unit), Pass: got >= want}
}

func atMost(what string, got, want float64, unit string) target {
	return target{What: what, Want: fmt.Sprintf("≤ %v%s", want, unit), Got: fmt.Sprintf("%.2f%s", got, unit), Pass: got <= want}
}

// contendedTargets judges redlockd on one host, with both kinds of connections.
func (r *report) contendedTargets() []target {
	var all []target
	for _, contender := range []string{redlockdConns, redlockdTags} {
		one, ok := r.findContention(contended.part, contender)
		if !ok {
			continue
		}
		what := fmt.Sprintf("%d waiters, %s: ", workersAtOnce, contender)
		all = append(all,
			atMost(what+"p50 of a hand-over", one.HandOverRatio, 0.4, " × "+baseline),
			atMost(what+"p50 of a hand-over", one.AloneRatio, 1.5, " × one lock alone"),
			atLeast(what+"acquisitions/s", one.RateRatio, 1.7, " × "+baseline),
			atMost(what+"commands a node for each acquisition", one.Commands, 1.2, ""),
			fair(what+"least served / most served", one))
	}
	return all
}

// fair judges the fairness between workers. A slice ends somewhere in a turn of
// all of them: where they are one apart, it cannot be fairer.
func fair(what string, one contentionRow) target {
	t := atLeast(what, one.Fairness, 0.95, " (or one apart)")
	t.Got = fmt.Sprintf("%.2f (%.0f/%.0f)", one.Fairness, one.Least, one.Most)
	t.Pass = t.Pass || one.Least > 0 && one.Apart <= 1
	return t
}

// wakeUpAllowance is what a delay of one ttl may have on top: a node may tell of
// an expired key late, and then there is a ballot.
const wakeUpAllowance = 1.05

func (r *report) hostsTargets() []target {
	h := r.Hosts
	if h == nil {
		return nil
	}
	what := fmt.Sprintf("%d hosts, %d waiters each: ", hostCount, hostWorkers)
	one, _ := r.findContention(severalHosts.part, allHosts)
	all := []target{
		atLeast(what+"acquisitions/s", one.RateRatio, 0.5, " × one host with all of them"),
		atLeast(what+"fairness between hosts, least / most", h.Fairness, 0.5, ""),
	}
	if h.Deaths > 0 {
		delayed := atMost(what+"one is killed, delay of the others", h.Delay/h.TTL, wakeUpAllowance, " × ttl")
		delayed.Want = "≤ 1 × ttl (and 5 % to notice it)"
		delayed.Pass = delayed.Pass && h.After > 0
		all = append(all, delayed)
	}
	return all
}

// writerAllowance is what a writer's wait may have on top of one hold time, in
// milliseconds: the round trips of his attempts and of the readers' unlocks, all
// of them at once, on a machine that has everything on it.
const writerAllowance = 10

func (r *report) readersTargets() []target {
	one := r.Readers
	if one == nil || one.Skipped != "" {
		return nil
	}
	return []target{
		{What: "readers that hold one name together", Want: fmt.Sprint(workersAtOnce), Got: fmt.Sprint(one.Together), Pass: one.Together == workersAtOnce},
		{
			What: "a writer among readers waits, at most",
			Want: fmt.Sprintf("≤ one hold, %.0f ms, and %d ms of round trips", one.Hold, writerAllowance),
			Got:  fmt.Sprintf("%.1f ms", one.Max),
			Pass: one.Writers > 0 && one.Max <= one.Hold+writerAllowance,
		},
	}
}

// foreignTargets judges that redsync and redlockd excluded each other.
func (r *report) foreignTargets() []target {
	theirs, ok := r.findContention(foreign.part, redsyncGoRedis)
	ours, ok2 := r.findContention(foreign.part, redlockdConns)
	if !ok || !ok2 {
		return nil
	}
	clashes := theirs.Clashes + ours.Clashes
	return []target{{
		What: "redsync and redlockd on one key: two holders at once",
		Want: "never, and grants to both",
		Got:  fmt.Sprintf("%d times; %s and %s grants/s", clashes, number(theirs.Rate), number(ours.Rate)),
		Pass: clashes == 0 && theirs.Rate > 0 && ours.Rate > 0,
	}}
}
