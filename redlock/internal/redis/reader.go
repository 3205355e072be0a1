package redis

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// replyReader reads what a node sends, in the Redis protocol (RESP3, of which RESP2 is a part). It
// rejects what no Redis sends to us, and what would harm its reader: lengths for which it would
// allocate memory before the contents arrive; endlessly nested lists; endless lines; numbers that
// would overflow; and pushes that nobody asked for. It also rejects kinds of answers that none of
// our commands has (sets, truth values, doubles). After an error nothing more can be read.
type replyReader struct {
	in         *bufio.Reader
	size       int // of this message: bytes that were read
	items      int // of this message: elements that were announced
	groupSize  int // of the messages since beginGroup
	groupItems int
}

// These are the limits of one message, above any valid answer. The largest answer is about a lock
// that thousands share, at some 170 bytes each.
const (
	respMaxDepth  = 8
	respMaxItems  = 1 << 17
	respMaxBytes  = 8 << 20
	respMaxText   = 64 << 10 // a line of text: an error
	respMaxNumber = 20       // a line with a number
)

// These are the limits of what a node may send between two questions: many answers to one group.
const (
	groupMaxBytes = 2 * respMaxBytes
	groupMaxItems = 2 * respMaxItems
)

// AnswerError is the error of invalid data that a node sent. The connection was ended because of
// it.
type AnswerError struct{ Err error }

func (e *AnswerError) Error() string {
	return fmt.Sprintf("it does not speak the protocol of Redis: it sent %v; is it Redis 7 or later, without a proxy between?", e.Err)
}

func (e *AnswerError) Unwrap() error { return e.Err }

func invalid(format string, args ...any) error { return &AnswerError{fmt.Errorf(format, args...)} }

var (
	errTooLong  = invalid("a line of more than %d bytes", respMaxText)
	errNoCRLF   = invalid("a line or a string that does not end with CR and LF")
	errNoNumber = invalid("a line that is no number, or one of more than 63 bits")
	errUnasked  = invalid("an answer without a request")
)

func newReplyReader(in io.Reader) *replyReader {
	return &replyReader{in: bufio.NewReaderSize(in, respMaxText+len("\r\n"))}
}

// beginGroup allows the node the maximum answer of one group.
func (r *replyReader) beginGroup() { r.groupSize, r.groupItems = 0, 0 }

// read reads a message. It may reuse the memory of the Array in reply, but not of nested Arrays. topic
// is what a push is about; "": the message is no push.
func (r *replyReader) read(reply *Reply) (topic string, err error) {
	r.size, r.items = 0, 0
	kind, err := r.in.Peek(1)
	if err != nil {
		return "", err
	}
	isPush := kind[0] == '>'
	if cap(reply.Array) > maxSpareItems {
		reply.Array = nil
	}
	clear(reply.Array[:cap(reply.Array)])
	*reply = Reply{Array: reply.Array[:0]}
	if err := r.readElement(reply, 0); err != nil {
		return "", err
	}
	r.groupSize += r.size
	r.groupItems += 1 + r.items
	switch {
	case r.groupSize > groupMaxBytes:
		return "", invalid("more than %d bytes at once", groupMaxBytes)
	case r.groupItems > groupMaxItems:
		return "", invalid("more than %d parts at once", groupMaxItems)
	case isPush:
		topic = reply.Array[0].Str
	}
	return topic, nil
}

// maxSpareItems is the size of the largest list whose memory is reused, and how many elements get memory
// before they arrive: enough for an ordinary group.
const maxSpareItems = 256

// readElement reads a message, or an element of a list, at a depth of nested lists.
func (r *replyReader) readElement(reply *Reply, depth int) error {
	kind, err := r.in.ReadByte()
	if err != nil {
		return err
	}
	r.size++
	var text []byte
	switch kind {
	case '+', '-', '_':
		text, err = r.readLine(respMaxText, errTooLong)
	case ':', '$', '=', '*', '%', '>':
		reply.Int, err = r.readNumber()
	default:
		return invalid("something that begins with %q", kind)
	}
	if err != nil {
		return err
	}
	switch n := reply.Int; kind {
	case '+':
		reply.Str = string(text)
	case '-':
		reply.Err = serverError(string(text))
	case '_':
		if reply.Nil = true; len(text) > 0 {
			return invalid("a null with something in it")
		}
	case '$', '=', '*', '%', '>':
		reply.Int = 0
		switch isList := kind != '$' && kind != '='; {
		case n == -1 && (kind == '$' || kind == '*'): // the null of RESP2
			reply.Nil = true
		case n < 0:
			return invalid("a length below 0")
		case isList:
			err = r.readList(reply, kind, n, depth)
		default:
			reply.Str, err = r.readString(n)
		}
	}
	if err == nil && r.size > respMaxBytes {
		err = invalid("an answer of more than %d bytes", respMaxBytes)
	}
	return err
}

// readLine reads the rest of a line of at most that many bytes. The result is valid until the next
// read.
func (r *replyReader) readLine(most int, tooLong error) ([]byte, error) {
	line, err := r.in.ReadSlice('\n')
	r.size += len(line)
	text, hasEnd := bytes.CutSuffix(line, []byte("\r\n"))
	switch {
	case len(text) > most:
		return nil, tooLong
	case err != nil:
		return nil, err
	case !hasEnd || bytes.IndexByte(text, '\r') >= 0:
		return nil, errNoCRLF
	}
	return text, nil
}

func (r *replyReader) readNumber() (int64, error) {
	line, err := r.readLine(respMaxNumber, errNoNumber)
	if err != nil {
		return 0, err
	}
	digits, isNegative := bytes.CutPrefix(line, []byte("-"))
	n, err := strconv.ParseUint(string(digits), 10, 63) // accepts no other sign
	switch {
	case err != nil:
		return 0, errNoNumber
	case isNegative:
		return -int64(n), nil
	}
	return int64(n), nil
}

func (r *replyReader) readString(n int64) (text string, err error) {
	if n > respMaxBytes {
		return "", invalid("a string of %d bytes, more than the %d that are read", n, respMaxBytes)
	}
	var b []byte
	whole := int(n) + len("\r\n")
	if whole <= r.in.Size() { // it needs no second copy
		if b, err = r.in.Peek(whole); err == nil {
			defer r.in.Discard(whole)
		}
	} else {
		b = make([]byte, whole)
		_, err = io.ReadFull(r.in, b)
	}
	switch {
	case err != nil:
		return "", err
	case b[n] != '\r' || b[n+1] != '\n':
		return "", errNoCRLF
	}
	r.size += whole
	return string(b[:n]), nil
}

// readList reads the elements of a list, of a map (keys and values in turn, as in RESP2) or of a
// push.
func (r *replyReader) readList(reply *Reply, kind byte, n int64, depth int) error {
	if kind == '%' {
		n = 2 * min(n, respMaxItems)
	}
	switch {
	case kind == '>' && depth > 0:
		return invalid("a push within an answer")
	case n > int64(respMaxItems-r.items):
		return invalid("an answer of more than %d parts", respMaxItems)
	case depth == respMaxDepth:
		return invalid("an answer of lists in lists, more than %d deep", respMaxDepth)
	}
	r.items += int(n)
	reply.Array = slices.Grow(reply.Array[:0], min(int(n), maxSpareItems))
	for i := range int(n) {
		reply.Array = append(reply.Array, Reply{})
		if err := r.readElement(&reply.Array[i], depth+1); err != nil {
			return err
		}
		if kind == '>' && i == 0 {
			if err := checkTopic(reply.Array[0].Str); err != nil {
				return err
			}
		}
	}
	if kind == '>' && n == 0 {
		return checkTopic("")
	}
	return nil
}

// checkTopic rejects pushes of which the driver would take some for the next answer.
func checkTopic(topic string) error {
	if topic != "message" && topic != "subscribe" {
		return errNotAsked(topic)
	}
	return nil
}

func errNotAsked(topic string) error {
	return invalid("a push about %.32q, which nobody asked for", topic)
}
