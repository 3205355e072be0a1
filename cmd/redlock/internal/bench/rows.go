package bench

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/output"
)

// row is the result of one measurement.
type row struct {
	name    string
	workers int
	took    time.Duration
	times   histogram
}

// newRows merges the measurements of the workers of a phase.
func newRows(p phase, meters []measurements, took time.Duration) (rows []row) {
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

func (b *Bench) Print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "redlockd %s, %s, a quorum is %d\n\n", output.Cell(b.hello.Version), output.NodeCount(len(b.status.Nodes)), b.status.Quorum)
	if err != nil {
		return output.WriteError(err)
	}
	rows := [][]string{{"WHAT", "WORKERS", "PER S", "P50", "P90", "P99", "MAX"}}
	for i := range b.rows {
		r := &b.rows[i]
		rows = append(rows, []string{r.name, strconv.Itoa(r.workers), fmt.Sprintf("%.0f", r.perSecond()),
			output.PreciseDuration(r.times.quantile(0.5)), output.PreciseDuration(r.times.quantile(0.9)), output.PreciseDuration(r.times.quantile(0.99)), output.PreciseDuration(r.times.longest)})
	}
	return output.Table(out, rows)
}

// JSON is the document that bench prints. Its keys never change.
type JSON struct {
	Version string    `json:"version"`
	Nodes   int       `json:"nodes"`
	Quorum  int       `json:"quorum"`
	Workers int       `json:"workers"`
	Rows    []RowJSON `json:"rows"`
}

type RowJSON struct {
	Row       string  `json:"row"`
	Workers   int     `json:"workers"`
	Done      uint64  `json:"done"`
	PerSecond float64 `json:"per_second"`
	P50       int64   `json:"p50_us"`
	P90       int64   `json:"p90_us"`
	P99       int64   `json:"p99_us"`
	Max       int64   `json:"max_us"`
}

func (b *Bench) JSON() JSON {
	value := JSON{Version: b.hello.Version, Nodes: len(b.status.Nodes), Quorum: b.status.Quorum, Workers: b.Workers, Rows: []RowJSON{}}
	for i := range b.rows {
		r := &b.rows[i]
		value.Rows = append(value.Rows, RowJSON{
			Row: r.name, Workers: r.workers, Done: r.times.n, PerSecond: r.perSecond(),
			P50: r.times.quantile(0.5).Microseconds(), P90: r.times.quantile(0.9).Microseconds(),
			P99: r.times.quantile(0.99).Microseconds(), Max: r.times.longest.Microseconds(),
		})
	}
	return value
}
