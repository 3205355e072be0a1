package lockname

import (
	"slices"
	"testing"
)

func TestSplitNames(t *testing.T) {
	for word, want := range map[string][]string{
		"job": {"job"}, "a,b": {"a", "b"}, "a%2Cb": {"a,b"}, "a%2Cb,c": {"a,b", "c"}, "100%": {"100%"},
	} {
		got, err := Split(word)
		if err != nil || !slices.Equal(got, want) || Join(got...) != word {
			t.Errorf("%q names %q (%v), and these are %q; want %q, and back", word, got, err, Join(got...), want)
		}
	}
}
