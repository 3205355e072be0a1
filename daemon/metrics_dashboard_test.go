package daemon

import (
	"encoding/json"
	"testing"
)

const dashboard = "../packaging/grafana.json"

// panel has the fields of a panel that the tests check.
type panel struct {
	ID      int
	Title   string
	Type    string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, RefID string }
}

// All metrics in the dashboard exist. Otherwise a panel would stay empty.
func TestMetricsOfTheDashboardExist(t *testing.T) {
	var board struct{ Panels []panel }
	if err := json.Unmarshal([]byte(readTestFile(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) < 15 {
		t.Fatalf("got %d panels, want more", len(board.Panels))
	}
	existing, ids := startWithMetrics(t, 1).scrape(), map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || p.Type == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d, %q: its id is not unique, or it shows nothing", p.ID, p.Title)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			checkExpr(t, existing, target.Expr)
		}
	}
}

// Panels do not overlap: Grafana would move them, and show them out of order.
func TestDashboardPanelsDoNotOverlap(t *testing.T) {
	var board struct{ Panels []panel }
	if err := json.Unmarshal([]byte(readTestFile(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	for i, a := range board.Panels {
		p := a.GridPos
		if p.X+p.W > 24 || p.W == 0 || p.H == 0 {
			t.Errorf("%q does not fit: %+v", a.Title, p)
		}
		for _, b := range board.Panels[:i] {
			if q := b.GridPos; p.X < q.X+q.W && q.X < p.X+p.W && p.Y < q.Y+q.H && q.Y < p.Y+p.H {
				t.Errorf("%q and %q overlap", a.Title, b.Title)
			}
		}
	}
}
