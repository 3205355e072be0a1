package access

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

func TestMatchLock(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a", "", false}, {"ab", "a", false},
		{"*", "", true}, {"*", "abc", true}, {"*", "a/b", false}, {"*", "/", false},
		{"**", "", true}, {"**", "a/b/c", true}, {"**", "/", true},
		{"web/*", "web/a", true}, {"web/*", "web/", true}, {"web/*", "web", false}, {"web/*", "web/a/b", false}, {"web/*", "xweb/a", false},
		{"web/**", "web/a/b", true}, {"web/**", "web/", true}, {"web/**", "web", false}, {"web/**", "webx/a", false},
		{"*/lock", "a/lock", true}, {"*/lock", "a/b/lock", false}, {"**/lock", "a/b/lock", true}, {"**/lock", "lock", false},
		{"**lock", "lock", true}, {"a*c", "abc", true}, {"a*c", "ac", true}, {"a*c", "abcb", false}, {"a*c", "a/c", false},
		{"*a*b*", "xaybz", true}, {"*a*b*", "xbya", false}, {"**a*b", "x/a/ab", true}, {"**a*b", "a/b", false}, {"*/**/x", "a/b/x", true},
		{"a**", "a", true}, {"a?", "ab", false}, {"a?", "a?", true}, {"[ab]", "a", false}, {`a\*`, `a\x`, true},
		{"*é", "xé", true}, {"ü*", "über", true}, {"two words", "two words", true}, {"a*", "A", false},
	} {
		if got := matchPattern(c.pattern, c.name); got != c.want {
			t.Errorf("%q, %q: got %t, want %t", c.pattern, c.name, got, c.want)
		}
	}
}

// A matcher that backtracks would not end with this pattern.
func TestMatchIsBounded(t *testing.T) {
	pattern, name := strings.Repeat("**a", 66)+"b", strings.Repeat("a", ipc.MaxName)
	if matchPattern(pattern, name) {
		t.Error("the pattern matches, want no match")
	}
}

// FuzzMatchLock compares matchPattern with matchByDefinition.
func FuzzMatchLock(f *testing.F) {
	for _, seed := range [][2]string{{"web/*", "web/a"}, {"**/x*/y", "a/b/xc/y"}, {"*a**b*", "aab/b"}, {"***", "a/"}, {"", ""}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 16 || len(name) > 24 {
			return // matchByDefinition takes exponential time
		}
		if got, want := matchPattern(pattern, name), matchByDefinition(pattern, name); got != want {
			t.Errorf("%q, %q: got %t, want %t", pattern, name, got, want)
		}
	})
}

func matchByDefinition(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case strings.HasPrefix(pattern, "**"):
		return anyTail(pattern[2:], name, len(name))
	case pattern[0] == '*':
		slash := strings.IndexByte(name+"/", '/')
		return anyTail(pattern[1:], name, slash)
	}
	return name != "" && name[0] == pattern[0] && matchByDefinition(pattern[1:], name[1:])
}

// anyTail reports whether the pattern matches the rest of name after a star took up to most bytes.
func anyTail(pattern, name string, most int) bool {
	for i := range most + 1 {
		if matchByDefinition(pattern, name[i:]) {
			return true
		}
	}
	return false
}
