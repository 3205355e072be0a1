package ipc

import (
	"math"
	"strings"
	"time"
	"unicode"
)

// Kind is the kind of a line from the daemon.
type Kind uint8

// The kinds. The answer to a request is any number of KindLine, and then one KindOK or KindErr.
// Events come between answers.
const (
	KindOK Kind = iota + 1
	KindErr
	KindLine
	KindEvent
)

// Names of events.
const (
	EventLost = "LOST" // a lease was lost
	EventBye  = "BYE"  // the daemon ends the connection
	EventBack = "BACK" // the daemon restarted, and kept this connection
)

// Response is one line from the daemon. Its builders return it, so that calls can be chained:
//
//	r.OK(tag).Str("lock", name).Ms("ttl", validity)
type Response struct {
	Tag    string // empty if it has none; events never have one
	Kind   Kind
	Code   Code   // with KindErr
	Event  string // with KindEvent: its name
	Fields []Field
	Text   string // for people, never for programs
}

// OK makes r a positive answer without fields.
func (r *Response) OK(tag string) *Response { return r.begin(tag, KindOK) }

// Err makes r a negative answer without fields.
func (r *Response) Err(tag string, code Code, text string) *Response {
	r.begin(tag, KindErr)
	r.Code, r.Text = code, text
	return r
}

// Line makes r one of the lines before an answer.
func (r *Response) Line(tag string) *Response { return r.begin(tag, KindLine) }

// Notice makes r an event, such as EventLost.
func (r *Response) Notice(event string) *Response {
	r.begin("", KindEvent)
	r.Event = event
	return r
}

func (r *Response) begin(tag string, kind Kind) *Response {
	*r = Response{Tag: tag, Kind: kind, Fields: r.Fields[:0]}
	return r
}

// Str adds a field.
func (r *Response) Str(key, value string) *Response {
	r.Fields = append(r.Fields, Field{Key: key, Value: value})
	return r
}

// Strs adds a field that is a list. A list of one element is the same as Str.
func (r *Response) Strs(key string, values ...string) *Response {
	switch len(values) {
	case 0:
		return r.Str(key, "")
	case 1:
		return r.Str(key, values[0])
	}
	r.Fields = append(r.Fields, Field{Key: key, List: values})
	return r
}

// Int adds a field that is a number.
func (r *Response) Int(key string, n int64) *Response {
	r.Fields = append(r.Fields, Field{Key: key, Number: n, IsNumber: true})
	return r
}

// Ms adds a field that is a duration, or an instant of a clock, in milliseconds. It rounds down, so
// that no lease seems longer than it is.
func (r *Response) Ms(key string, d time.Duration) *Response {
	return r.Int(key, d.Milliseconds())
}

// Say sets the text for people.
func (r *Response) Say(text string) *Response {
	r.Text = text
	return r
}

// Get returns a field's value as a string. ok is false if there is no such field.
func (r *Response) Get(key string) (value string, ok bool) {
	f := r.field(key)
	if f == nil {
		return "", false
	}
	return f.String(), true
}

// Strings returns a field's value as a list, or nil if there is no such field.
func (r *Response) Strings(key string) []string {
	f := r.field(key)
	switch {
	case f == nil:
		return nil
	case f.List != nil:
		return f.List
	}
	return []string{f.String()}
}

// Int64 returns a field's value. ok is false if there is no such field, or it is not a number.
func (r *Response) Int64(key string) (n int64, ok bool) {
	f := r.field(key)
	if f == nil || !f.IsNumber {
		return 0, false
	}
	return f.Number, true
}

// Duration returns a field's value in milliseconds. ok is false if there is no such field, or it is
// not a duration.
func (r *Response) Duration(key string) (d time.Duration, ok bool) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	n, ok := r.Int64(key)
	if !ok || n > most || n < -most {
		return 0, false
	}
	return time.Duration(n) * time.Millisecond, true
}

func (r *Response) field(key string) *Field {
	for i := range r.Fields {
		if r.Fields[i].Key == key {
			return &r.Fields[i]
		}
	}
	return nil
}

// AppendTo appends the response as one line of at most MaxLine bytes, including LF. It cuts text
// that is too long, and omits fields that do not fit. (The bounds of requests keep replies so short
// that all fields fit.)
func (r *Response) AppendTo(b []byte) []byte {
	limit := len(b) + MaxLine - len("\n")
	b = r.appendHead(b)
	for i := range r.Fields {
		if with := r.Fields[i].appendTo(b); len(with) <= limit {
			b = with
		}
	}
	b = r.appendText(b, limit)
	return append(b, '\n')
}

func (r *Response) appendHead(b []byte) []byte {
	switch b = appendTag(b, r.Tag); r.Kind {
	case KindOK:
		return append(b, "OK"...)
	case KindErr:
		b = append(b, "ERR "...)
		return append(b, r.Code...)
	case KindLine:
		return append(b, '-')
	default:
		return append(b, r.Event...)
	}
}

// appendText appends " : text", cut so that b has at most limit bytes.
func (r *Response) appendText(b []byte, limit int) []byte {
	const colon = " : "
	room := limit - len(b) - len(colon)
	if r.Text == "" || room <= 0 {
		return b
	}
	text := r.Text
	if checkText(text) != nil || strings.IndexByte(text, '\t') >= 0 {
		text = printable(text)
	}
	b = append(b, colon...)
	return append(b, truncate(text, room)...)
}

// printable replaces what the text of a line cannot contain: control characters by spaces, and
// bytes that are not UTF-8 by U+FFFD.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// ParseResponse reads a line, without its LF, into r. It reuses r's slice of fields, and the
// strings share one allocation. It keeps unknown fields and events. Every error is an *Error.
func ParseResponse(line []byte, r *Response) error {
	*r = Response{Fields: r.Fields[:0]}
	if len(line) >= MaxLine {
		return tooLong()
	}
	w := words{strings.TrimSuffix(string(line), "\r")}
	if err := checkText(w.rest); err != nil {
		return err
	}
	var err error
	if r.Tag, err = w.tag(); err != nil {
		return err
	}
	if err := r.parseHead(&w); err != nil {
		return err
	}
	return r.parseFields(&w)
}

// parseHead reads the kind of the line.
func (r *Response) parseHead(w *words) error {
	word, _ := w.next()
	switch {
	case word == "OK":
		r.Kind = KindOK
	case word == "-":
		r.Kind = KindLine
	case word == "ERR":
		r.Kind = KindErr
		code, _ := w.next()
		if !isCapital(code) {
			return Errorf(CodeSyntax, "%s is not a code after ERR", quote(code))
		}
		r.Code = Code(code)
	case isCapital(word) && r.Tag == "":
		r.Kind, r.Event = KindEvent, word
	default:
		return Errorf(CodeSyntax, "%s is neither OK, ERR, - nor an event", quote(word))
	}
	return nil
}

// isCapital reports whether a word can be a code or the name of an event.
func isCapital(word string) bool {
	for i := range len(word) {
		if word[i] < 'A' || word[i] > 'Z' {
			return false
		}
	}
	return word != ""
}

// parseFields reads the fields, and the text after them.
func (r *Response) parseFields(w *words) error {
	for word, ok := w.next(); ok; word, ok = w.next() {
		if word == ":" {
			if w.rest != "" { // else the text is empty
				r.Text = printable(w.rest[1:])
			}
			return nil
		}
		f, err := parseField(word)
		if err != nil {
			return err
		}
		r.Fields = append(r.Fields, f)
	}
	return nil
}
