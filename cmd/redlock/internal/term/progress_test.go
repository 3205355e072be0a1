package term

import (
	"testing"
	"time"
)

func TestProgressLine(t *testing.T) {
	p := NewProgress(nil, 4*time.Second)
	p.Begin("throughput", 2, 4)
	for passed, want := range map[time.Duration]string{
		0:               "[                              ]   0% 3/4 throughput",
		3 * time.Second: "[######################        ]  75% 3/4 throughput",
		5 * time.Second: "[##############################] 100% 3/4 throughput",
	} {
		if got := p.line(passed); got != want {
			t.Errorf("after %v %q, want %q", passed, got, want)
		}
	}
	p.End()
}
