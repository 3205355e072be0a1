package ipc

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Field is one key=value of a reply. The value is a whole number, a list of two or more elements,
// or a string.
type Field struct {
	Key      string
	Value    string
	List     []string
	Number   int64
	IsNumber bool
}

// String returns the value as a string. Elements of a list are separated by commas.
func (f *Field) String() string {
	switch {
	case f.IsNumber:
		return strconv.FormatInt(f.Number, 10)
	case f.List != nil:
		return strings.Join(f.List, ",")
	}
	return f.Value
}

// appendTo appends " key=value".
func (f *Field) appendTo(b []byte) []byte {
	b = append(b, ' ')
	b = append(b, f.Key...)
	b = append(b, '=')
	switch {
	case f.IsNumber:
		return strconv.AppendInt(b, f.Number, 10)
	case f.List == nil:
		return appendEscaped(b, f.Value)
	}
	for i, element := range f.List {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEscaped(b, element)
	}
	return b
}

// parseField reads a word of a reply.
func parseField(word string) (Field, error) {
	key, value, ok := strings.Cut(word, "=")
	if !ok || key == "" {
		return Field{}, Errorf(CodeSyntax, "%s is not key=value", quote(word))
	}
	f := Field{Key: key}
	err := f.parse(value)
	if err != nil {
		return Field{}, Errorf(CodeSyntax, "%s: %v", quote(word), err)
	}
	return f, nil
}

func (f *Field) parse(value string) (err error) {
	if strings.IndexByte(value, ',') >= 0 {
		for element := range strings.SplitSeq(value, ",") {
			decoded, err := unescape(element)
			if err != nil {
				return err
			}
			f.List = append(f.List, decoded)
		}
		return nil
	}
	if f.Value, err = unescape(value); err != nil {
		return err
	}
	if f.Number, f.IsNumber = parseNumber(f.Value); f.IsNumber {
		f.Value = ""
	}
	return nil
}

// parseNumber accepts only the form that AppendInt writes: 007 is a string.
func parseNumber(s string) (int64, bool) {
	digits := strings.TrimPrefix(s, "-")
	if !isDigits(digits) || digits[0] == '0' && len(s) > 1 {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, false // too large for an int64
	}
	return n, true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// truncate returns the beginning of s that has at most n bytes. It does not split a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
