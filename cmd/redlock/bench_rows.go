package main

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// row is what has been measured of one thing.
type row struct {
	name    string
	workers int
	took    time.Duration
	times   histogram
}

// rowsOf adds up what the workers of a part have measured.
func rowsOf(p part, meters []meter, took time.Duration) (rows []row) {
	for i, name := range p.rows {
		r := row{name: name, workers: p.workers, took: took}
		for m := range meters {
			r.times.merge(&meters[m][i])
		}
		rows = append(rows, r)
	}
	return rows
}

func (r *row) perSecond() float64 { return float64(r.times.n) / r.took.Seconds() }

func (b *bench) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "redlockd %s, %s, a quorum is %d\n\n", cell(b.hello.Version), nodeCount(len(b.status.Nodes)), b.status.Quorum)
	if err != nil {
		return unwritten(err)
	}
	rows := [][]string{{"WHAT", "WORKERS", "PER S", "P50", "P90", "P99", "MAX"}}
	for i := range b.rows {
		r := &b.rows[i]
		rows = append(rows, []string{r.name, strconv.Itoa(r.workers), fmt.Sprintf("%.0f", r.perSecond()),
			fine(r.times.quantile(0.5)), fine(r.times.quantile(0.9)), fine(r.times.quantile(0.99)), fine(r.times.most)})
	}
	return table(out, rows)
}

// benchJSON is what bench prints for programs. Names are never changed.
type benchJSON struct {
	Version string    `json:"version"`
	Nodes   int       `json:"nodes"`
	Quorum  int       `json:"quorum"`
	Workers int       `json:"workers"`
	Rows    []rowJSON `json:"rows"`
}

type rowJSON struct {
	Row       string  `json:"row"`
	Workers   int     `json:"workers"`
	Done      uint64  `json:"done"`
	PerSecond float64 `json:"per_second"`
	P50       int64   `json:"p50_us"`
	P90       int64   `json:"p90_us"`
	P99       int64   `json:"p99_us"`
	Max       int64   `json:"max_us"`
}

func (b *bench) json() benchJSON {
	value := benchJSON{Version: b.hello.Version, Nodes: len(b.status.Nodes), Quorum: b.status.Quorum, Workers: b.workers, Rows: []rowJSON{}}
	for i := range b.rows {
		r := &b.rows[i]
		value.Rows = append(value.Rows, rowJSON{
			Row: r.name, Workers: r.workers, Done: r.times.n, PerSecond: r.perSecond(),
			P50: r.times.quantile(0.5).Microseconds(), P90: r.times.quantile(0.9).Microseconds(),
			P99: r.times.quantile(0.99).Microseconds(), Max: r.times.most.Microseconds(),
		})
	}
	return value
}

// histogram counts durations in buckets that are 2 % wide: however long the
// measurement takes, it needs no more room.
type histogram struct {
	n      uint64
	most   time.Duration
	counts [buckets]uint64
}

const (
	bucketWidth = 1.02
	buckets     = 1150 // from 1 µs to more than two hours
)

// time adds how long f takes, unless it errs.
func (h *histogram) time(f func() error) error {
	start := time.Now()
	err := f()
	if err == nil {
		h.add(time.Since(start))
	}
	return err
}

func (h *histogram) add(d time.Duration) {
	h.n++
	h.most = max(h.most, d)
	h.counts[bucketOf(d)]++
}

func bucketOf(d time.Duration) int {
	if d <= time.Microsecond {
		return 0
	}
	return min(buckets-1, int(math.Ceil(math.Log(float64(d)/1000)/math.Log(bucketWidth))))
}

func (h *histogram) merge(other *histogram) {
	h.n += other.n
	h.most = max(h.most, other.most)
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// quantile is the duration that a share of all does not exceed, to 2 %; 0 where
// there are none.
func (h *histogram) quantile(share float64) time.Duration {
	rank := uint64(math.Ceil(share * float64(h.n)))
	var below uint64
	for i, n := range h.counts {
		if below += n; n > 0 && below >= rank {
			return min(h.most, time.Duration(1000*math.Pow(bucketWidth, float64(i))))
		}
	}
	return 0
}
