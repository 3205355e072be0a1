package lockname

import (
	"slices"
	"testing"
)

func TestLookAlikes(t *testing.T) {
	for _, test := range []struct{ names, want []string }{
		{nil, nil},
		{[]string{"caf\u00e9", "caf\u00e9", "cafe"}, nil},
		{[]string{"b", "cafe\u0301", "caf\u00e9", "cafe\u0301", "a"}, []string{`"café": 2 locks have names that look alike, in different Unicode forms: "cafe\u0301", "caf\u00e9"`}},
		{[]string{"\u212b", "A\u030a", "\u00c5", "e\u0301", "\u00e9"}, []string{
			`"Å": 3 locks have names that look alike, in different Unicode forms: "A\u030a", "\u00c5", "\u212b"`,
			`"é": 2 locks have names that look alike, in different Unicode forms: "e\u0301", "\u00e9"`,
		}},
	} {
		if got := LookAlikes(test.names); !slices.Equal(got, test.want) {
			t.Errorf("%+q: %q, want %q", test.names, got, test.want)
		}
	}
}
