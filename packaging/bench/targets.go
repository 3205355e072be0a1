package main

import (
	"fmt"
	"strings"
)

// target is a figure that redlockd must reach.
type target struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Pass bool   `json:"pass"`
}

// targetsOf evaluates the targets for which there are figures.
func targetsOf(r *report) []target {
	var all []target
	add := func(t target, measured bool) {
		if measured {
			all = append(all, t)
		}
	}
	add(r.throughput(redlockdTags, "64 workers on one client connection, distinct names: pairs/s"))
	add(r.throughput(redlockdConns, "the same, a connection a worker"))
	add(r.latency())
	add(r.hungMedian())
	add(r.hungTail("", false))
	add(r.hungTail(", the wait for 63 others included", true))
	if m := r.Memory; m != nil {
		all = append(all,
			below("memory of the daemon, idle", float64(m.Idle)/1e6, 18, "MB"),
			below(fmt.Sprintf("each of %d idle connections", m.Conns), float64(m.PerConn)/1024, 16, "KB"))
	}
	all = append(all, r.contendedTargets()...)
	all = append(all, r.hostsTargets()...)
	all = append(all, r.readersTargets()...)
	all = append(all, r.foreignTargets()...)
	all = append(all, r.networkTargets()...)
	all = append(all, r.fleetTargets()...)
	return append(all, r.heldTargets()...)
}

// find returns the row of a contender in a part.
func (r *report) find(part, contender string, hung bool) (row, bool) {
	for _, one := range r.Rows {
		if one.Part == part && one.Contender == contender && one.Hung == hung {
			return one, true
		}
	}
	return row{}, false
}

// throughput compares redlockd with the binary of -before: it must not be slower.
func (r *report) throughput(contender, what string) (target, bool) {
	one, ok := r.find("distinct", contender, false)
	return atLeast(what, one.BeforeRateRatio, 0.97, " × before"), ok && one.BeforeRateRatio > 0
}

func (r *report) latency() (target, bool) {
	one, ok := r.find("one", redlockdTags, false)
	return atMost("1 worker: p50 of a pair, the socket hop included", one.BeforeP50Ratio, 1.03, " × before"), ok && one.BeforeP50Ratio > 0
}

// eachHung calls do for redlockd's rows with a hung node, together with the row without one.
func (r *report) eachHung(do func(hung, well row)) {
	for _, hung := range r.Rows {
		if !hung.Hung || hung.Part == "held" || !strings.HasPrefix(hung.Contender, "redlockd") {
			continue
		}
		if well, ok := r.find(hung.Part, hung.Contender, false); ok {
			do(hung, well)
		}
	}
}

// hungMedian evaluates the worst scenario.
func (r *report) hungMedian() (target, bool) {
	worst, where := 0.0, ""
	r.eachHung(func(hung, well row) {
		if ratio := hung.P50 / well.P50; ratio > worst {
			worst, where = ratio, hung.where()
		}
	})
	return target{
		What: "1 of 5 nodes hung: p50 of a pair",
		Want: "≤ 1.3 × all nodes well",
		Got:  fmt.Sprintf("%.2f × at worst (%s)", worst, where),
		Pass: worst <= 1.3,
	}, where != ""
}

// hungTail evaluates the worst scenario, with contention or without. A pair on a name that all
// workers want includes the wait for the others.
func (r *report) hungTail(what string, contended bool) (target, bool) {
	worst, where := 0.0, ""
	r.eachHung(func(hung, _ row) {
		if (hung.Part == "same") == contended && hung.P99 > worst {
			worst, where = hung.P99, hung.where()
		}
	})
	limit := milliseconds(nodeTimeout)
	return target{
		What: "1 of 5 nodes hung: p99 of a pair" + what,
		Want: fmt.Sprintf("< node_timeout, %.0f ms", limit),
		Got:  fmt.Sprintf("%.1f ms at worst (%s)", worst, where),
		Pass: worst < limit,
	}, where != ""
}

func (r row) where() string { return r.Scenario + ", " + r.Contender }

// heldTargets evaluates the leases that redlockd held without a hung node.
func (r *report) heldTargets() []target {
	var all []target
	for _, h := range r.Held {
		if h.Contender != redlockdTags {
			continue
		}
		what := fmt.Sprintf("%d leases held for %.0f s", h.Leases, h.Seconds)
		if h.Hung {
			what += ", a node hung"
		}
		all = append(all, target{What: what + ": lost", Want: "0", Got: fmt.Sprint(h.Lost), Pass: h.Lost == 0})
		if !h.Hung {
			all = append(all,
				below(what+": CPU of the daemon", h.Daemon, 0.25, "cores"),
				below(what+": its memory for each", float64(h.PerLease)/1024, 2, "KB"))
		}
	}
	return all
}

func below(what string, got, limit float64, unit string) target {
	return target{What: what, Want: fmt.Sprintf("< %v %s", limit, unit), Got: fmt.Sprintf("%.2f %s", got, unit), Pass: got < limit}
}
