package redis

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// respScanner parses one direction of a connection to a node, in the Redis protocol (RESP3, of
// which RESP2 is a part), however the bytes are cut into pieces. It stores none of them. It
// rejects what no Redis sends to us and what the driver would not survive: lengths for which the
// driver would allocate memory before the contents arrive, or panic; endlessly nested lists;
// endless lines; numbers that would overflow; and pushes that the driver takes for answers. It
// also rejects kinds of answers that none of our commands has (sets, truth values, doubles).
type respScanner struct {
	phase  respPhase
	kind   byte // of the element whose line is being read
	line   int  // bytes of that line so far
	number int64
	minus  bool
	left   int // bytes of a string that are still to be read

	open    [respMaxDepth]int // elements still to be read, of each list that is not complete
	depth   int
	items   int    // of this message: elements that were announced
	size    int    // of this message: bytes that were read
	push    bool   // this message is a push, not an answer
	topical bool   // the next element is the first part of a push: its topic
	topic   []byte // the part of the topic that was read

	begunAnswers int64 // answers so far, complete or not
	wholeAnswers int64 // complete answers so far
	allItems     int64 // elements so far
}

// These are the limits of one message, above any valid answer. The largest answer is about a lock
// that thousands share, at some 170 bytes each.
const (
	respMaxDepth = 8
	respMaxItems = 1 << 17
	respMaxBytes = 8 << 20
	respMaxText  = 64 << 10 // a line of text: an error
	respMaxTopic = 32
)

type respPhase uint8

const (
	respBegin  respPhase = iota // an element begins: its kind comes next
	respNumber                  // a line with a number
	respText                    // a line of text
	respLine                    // the LF at the end of a line
	respString                  // the bytes of a string
	respCR                      // the end of a string
	respLF
)

var (
	errTooMuch  = fmt.Errorf("an answer of more than %d bytes", respMaxBytes)
	errTooMany  = fmt.Errorf("an answer of more than %d parts", respMaxItems)
	errTooDeep  = fmt.Errorf("an answer of lists in lists, more than %d deep", respMaxDepth)
	errTooLong  = fmt.Errorf("a line of more than %d bytes", respMaxText)
	errNoCRLF   = errors.New("a line or a string that does not end with CR and LF")
	errNoNumber = errors.New("a line that is no number, or one of more than 63 bits")
	errNegative = errors.New("a length below 0")
	errNoNull   = errors.New("a null with something in it")
)

// scan parses the next bytes. After an error none of them may be used.
func (s *respScanner) scan(b []byte) error {
	_, err := s.scanUntil(b, math.MaxInt64)
	return err
}

// scanUntil is scan, up to the end of the answer with that number. It returns how many bytes it
// parsed.
func (s *respScanner) scanUntil(b []byte, answers int64) (scanned int, err error) {
	for scanned < len(b) && s.wholeAnswers < answers {
		n, err := s.step(b[scanned:])
		if err != nil {
			return scanned, err
		}
		if s.size += n; s.size > respMaxBytes {
			return scanned, errTooMuch
		}
		scanned += n
	}
	return scanned, nil
}

// step parses some of the bytes, all of them in the same phase.
func (s *respScanner) step(b []byte) (n int, err error) {
	switch s.phase {
	case respBegin:
		return 1, s.begin(b[0])
	case respNumber:
		return s.readNumber(b)
	case respText:
		return s.readText(b)
	case respString:
		return s.readString(b), nil
	}
	return 1, s.readEnd(b[0])
}

func (s *respScanner) begin(kind byte) error {
	s.kind, s.line, s.number, s.minus = kind, 0, 0, false
	if s.depth == 0 {
		s.beginMessage(kind)
	} else if kind == '>' {
		return errors.New("a push within an answer")
	}
	switch kind {
	case ':', '$', '*', '%', '=', '>':
		s.phase = respNumber
	case '+', '-', '_':
		s.phase = respText
	default:
		return fmt.Errorf("something that begins with %q", kind)
	}
	return nil
}

func (s *respScanner) beginMessage(kind byte) {
	s.items, s.size, s.topic = 0, 0, s.topic[:0]
	s.push = kind == '>'
	s.topical = s.push
	s.allItems++
	if !s.push {
		s.begunAnswers++
	}
}

func (s *respScanner) readNumber(b []byte) (n int, err error) {
	number := s.number
	for n, c := range b {
		digit := c - '0'
		switch {
		case digit <= 9:
			if number > (math.MaxInt64-int64(digit))/10 {
				return n, errNoNumber
			}
			number = 10*number + int64(digit)
		case c == '-' && s.line+n == 0:
			s.minus = true
		case c == '\r' && s.line+n > 0 && (s.line+n > 1 || !s.minus):
			s.number, s.phase = number, respLine
			return n + 1, nil
		default:
			return n, errNoNumber
		}
	}
	s.number = number
	s.line += len(b)
	return len(b), nil
}

func (s *respScanner) readText(b []byte) (n int, err error) {
	n = bytes.IndexByte(b, '\r')
	text := b[:max(n, 0)]
	if n < 0 {
		n, text = len(b), b
	} else {
		n++
		s.phase = respLine
	}
	s.note(text)
	switch s.line += len(text); {
	case bytes.IndexByte(text, '\n') >= 0:
		return n, errNoCRLF
	case s.line > respMaxText:
		return n, errTooLong
	case s.kind == '_' && s.line > 0:
		return n, errNoNull // the driver relies on its length
	}
	return n, nil
}

func (s *respScanner) readString(b []byte) (n int) {
	n = min(s.left, len(b))
	s.note(b[:n])
	if s.left -= n; s.left == 0 {
		s.phase = respCR
	}
	return n
}

// readEnd reads a byte of the end of a line or a string.
func (s *respScanner) readEnd(c byte) error {
	switch {
	case s.phase == respCR && c == '\r':
		s.phase = respLF
		return nil
	case s.phase == respLF && c == '\n':
		return s.end()
	case s.phase == respLine && c == '\n':
		return s.endLine()
	}
	return errNoCRLF
}

// endLine begins what the line has announced.
func (s *respScanner) endLine() error {
	switch s.kind {
	case '$', '=':
		return s.beginString()
	case '*', '>', '%':
		return s.beginList()
	}
	return s.end()
}

func (s *respScanner) beginString() error {
	switch {
	case s.isNull():
		return s.end()
	case s.minus:
		return errNegative
	case s.number > respMaxBytes:
		return fmt.Errorf("a string of %d bytes, more than the %d that are read", s.number, respMaxBytes)
	}
	s.left, s.phase = int(s.number), respString
	if s.left == 0 {
		s.phase = respCR
	}
	return nil
}

func (s *respScanner) beginList() error {
	switch {
	case s.isNull() || s.number == 0 && !s.minus:
		return s.end()
	case s.minus:
		return errNegative
	case s.number > respMaxItems:
		return errTooMany
	case s.depth == respMaxDepth:
		return errTooDeep
	}
	n := int(s.number)
	if s.kind == '%' { // keys and values
		n *= 2
	}
	if s.items += n; s.items > respMaxItems {
		return errTooMany
	}
	s.allItems += int64(n)
	s.open[s.depth] = n
	s.depth++
	s.phase = respBegin
	return nil
}

// isNull reports whether the length is -1, the null of RESP2.
func (s *respScanner) isNull() bool {
	return s.minus && s.number == 1 && (s.kind == '$' || s.kind == '*')
}

// end ends an element, and each list of which it is the last.
func (s *respScanner) end() error {
	s.phase = respBegin
	if s.topical && s.depth <= 1 {
		s.topical = false
		if err := s.checkTopic(); err != nil {
			return err
		}
	}
	for s.depth > 0 {
		if s.open[s.depth-1]--; s.open[s.depth-1] > 0 {
			return nil
		}
		s.depth--
	}
	if !s.push {
		s.wholeAnswers++
	}
	return nil
}

// note stores the topic of a push.
func (s *respScanner) note(b []byte) {
	if s.topical && s.depth == 1 {
		s.topic = append(s.topic, b[:min(len(b), respMaxTopic-len(s.topic))]...)
	}
}

// checkTopic rejects pushes that the driver would take for the next answer. The confirmation of a
// subscription is the answer to SUBSCRIBE.
func (s *respScanner) checkTopic() error {
	switch string(s.topic) {
	case "message":
		return nil
	case "subscribe":
		s.push = false
		s.begunAnswers++
		return nil
	}
	return fmt.Errorf("a push about %q, which nobody asked for", s.topic)
}
