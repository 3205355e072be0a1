package doctor

import (
	"slices"
	"testing"

	"github.com/redlockd/redlockd/client"
	"github.com/redlockd/redlockd/cmd/redlock/internal/lockname"
)

// Locks whose names look alike are a warning. Without such locks the check says nothing.
func TestNamesThatLookAlike(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  []Finding
	}{
		{nil, nil},
		{[]string{"caf\u00e9", "cafe"}, nil},
		{[]string{"caf\u00e9", "cafe\u0301"}, []Finding{{"names", Warning, `"café": 2 locks have names that look alike, in different Unicode forms: "cafe\u0301", "caf\u00e9"`, lockname.FixLookAlikes}}},
	} {
		got := healthy(func(p *snapshot) { p.entries = []client.Entry{{Names: test.names}} }).checkNames()
		if !slices.Equal(got, test.want) {
			t.Errorf("%+q: %+v, want %+v", test.names, got, test.want)
		}
	}
}

// A path that cannot be a socket is named as such.
func TestSocketIsURL(t *testing.T) {
	if got := checkSocket("tcp://10.0.0.1:6379")[0]; got.result != Bad || got.text != "tcp://10.0.0.1:6379 is a URL, and redlockd listens on a Unix socket of this host" {
		t.Errorf("found %+v", got)
	}
}
