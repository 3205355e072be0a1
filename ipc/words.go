package ipc

import "strings"

// words splits a line. Several spaces count as one, and a TAB counts as a space.
type words struct{ rest string }

// next returns the next word. ok is false at the end of the line.
func (w *words) next() (word string, ok bool) {
	w.skip()
	end := 0
	for end < len(w.rest) && !isSpace(w.rest[end]) {
		end++
	}
	word, w.rest = w.rest[:end], w.rest[end:]
	return word, word != ""
}

func (w *words) skip() {
	for w.rest != "" && isSpace(w.rest[0]) {
		w.rest = w.rest[1:]
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// tag reads the word if it begins with "@".
func (w *words) tag() (string, error) {
	w.skip()
	if !strings.HasPrefix(w.rest, "@") {
		return "", nil
	}
	word, _ := w.next()
	if !ValidTag(word[1:]) {
		return "", Errorf(CodeSyntax, "%s is not a tag: @ and 1 to %d letters or digits", quote(word), MaxTag)
	}
	return word[1:], nil
}

// ValidTag reports whether tag can be a tag: 1 to MaxTag ASCII letters or digits.
func ValidTag(tag string) bool {
	if tag == "" || len(tag) > MaxTag {
		return false
	}
	for i := range len(tag) {
		c := tag[i]
		if (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// appendTag appends "@tag ", or nothing if there is no tag.
func appendTag(b []byte, tag string) []byte {
	if tag == "" {
		return b
	}
	b = append(b, '@')
	b = append(b, tag...)
	return append(b, ' ')
}
