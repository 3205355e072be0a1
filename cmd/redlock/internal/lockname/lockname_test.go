package lockname

import (
	"slices"
	"testing"
)

func TestSplitNames(t *testing.T) {
	for word, want := range map[string][]string{
		"job": {"job"}, "a,b": {"a", "b"}, "a%2Cb": {"a,b"}, "a%2Cb,c": {"a,b", "c"}, "100%": {"100%"},
		"a%252Cb": {"a%2Cb"}, "a%25252Cb%2C%252C": {"a%252Cb,%2C"}, "a%25b%2c%20": {"a%25b%2c%20"}, "%%2C": {"%,"}, "%25%2C": {"%25,"},
	} {
		got, err := Split(word)
		if err != nil || !slices.Equal(got, want) || Join(got...) != word {
			t.Errorf("%q names %q (%v), and these are %q; want %q, and back", word, got, err, Join(got...), want)
		}
	}
}
