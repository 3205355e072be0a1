package ipc

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

var errEscape = errors.New("% must be followed by two hexadecimal digits; write % itself as %25")

// special marks the bytes that appendEscaped must look at: bytes that are always escaped, and bytes
// of characters beyond ASCII.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c <= ' ' || c >= 0x7f || strings.IndexByte("=,%", byte(c)) >= 0
	}
	return t
}()

// appendEscaped appends s with %XX for spaces, control characters, "=", ",", "%", and bytes that
// are not UTF-8.
func appendEscaped(b []byte, s string) []byte {
	for {
		n := plainPrefix(s)
		b = append(b, s[:n]...)
		if n == len(s) {
			return b
		}
		r, size := utf8.DecodeRuneInString(s[n:])
		if r < utf8.RuneSelf || unicode.IsControl(r) || r == utf8.RuneError && size == 1 {
			b = appendHex(b, s[n:n+size])
		} else {
			b = append(b, s[n:n+size]...)
		}
		s = s[n+size:]
	}
}

// plainPrefix returns how many bytes at the beginning of s are not special.
func plainPrefix(s string) int {
	for i := range len(s) {
		if special[s[i]] {
			return i
		}
	}
	return len(s)
}

func appendHex(b []byte, s string) []byte {
	for i := range len(s) {
		b = append(b, '%', upperHex[s[i]>>4], upperHex[s[i]&15])
	}
	return b
}

// escapedLen returns how many bytes appendEscaped appends.
func escapedLen(s string) int {
	n := plainPrefix(s)
	if n == len(s) {
		return n
	}
	return len(appendEscaped(nil, s))
}

// unescape reverses appendEscaped. It also accepts unnecessary escapes. The result is UTF-8. It
// allocates only if something is escaped.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) || unhex[s[i+1]] < 0 || unhex[s[i+2]] < 0 {
			return "", errEscape
		}
		b = append(b, byte(unhex[s[i+1]]<<4|unhex[s[i+2]]))
		i += 2
	}
	if !utf8.Valid(b) {
		return "", errors.New("it is not UTF-8 after the %XX are replaced")
	}
	return string(b), nil
}

// unhex holds the values of hexadecimal digits, and -1 for all other bytes.
var unhex = func() (t [256]int) {
	for c := range t {
		t[c] = strings.IndexByte(upperHex, byte(unicode.ToUpper(rune(c))))
	}
	return t
}()

// checkText rejects lines that are not UTF-8, or contain control characters other than TAB.
func checkText(line string) error {
	for i := range len(line) {
		if c := line[i]; c < ' ' && c != '\t' || c >= 0x7f {
			return checkRunes(line)
		}
	}
	return nil
}

func checkRunes(line string) error {
	for i, r := range line {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(line[i:], "\ufffd"):
			return Errorf(CodeSyntax, "byte %d of the line is not UTF-8", i+1)
		case r != '\t' && unicode.IsControl(r):
			return Errorf(CodeSyntax, "byte %d of the line is the control character %U: write it as %s",
				i+1, r, appendHex(nil, string(r)))
		}
	}
	return nil
}
