package ipc

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a request. Lengths of names and words are those of the decoded bytes.
const (
	MaxLine  = 4096 // bytes of a line, including LF
	MaxTag   = 16
	MaxName  = 200
	MaxNames = 100 // names in one request
	MaxWord  = 200 // the argument of CANCEL, ADMIT, HELLO and HELP

	// maxNameList bounds the total length of the names of one request, as AppendTo writes them. So
	// the replies and lines of LIST that repeat them fit into a line.
	maxNameList = 3000
)

// reserved is the prefix of the daemon's own keys. A lock's name cannot begin with it.
const reserved = "redlockd:"

// Request is one line from a client.
type Request struct {
	Tag   string // empty if it has none
	Verb  Verb
	Names []string // of locks, in the given order, all different
	Words []string // CANCEL's tag, ADMIT's node, HELLO's version, HELP's verb
	Options
}

// ParseRequest reads a line, without its LF, into req. It reuses req's slices, and the strings
// share one allocation. Every error is an *Error, with the code and text of the answer. After an
// error, only req.Tag is meaningful; it is set if the line has a tag.
func ParseRequest(line []byte, req *Request) error {
	*req = Request{Names: req.Names[:0], Words: req.Words[:0]}
	w := words{strings.TrimSuffix(string(line), "\r")}
	var err error
	if req.Tag, err = w.tag(); err != nil {
		return err
	}
	if len(line) >= MaxLine {
		return tooLong()
	}
	if err := checkText(w.rest); err != nil {
		return err
	}
	return req.parse(&w)
}

func tooLong() error {
	return Errorf(CodeTooLong, "a line is at most %d bytes, its LF included", MaxLine)
}

// parse reads the words after the tag.
func (r *Request) parse(w *words) error {
	word, ok := w.next()
	if !ok {
		return Errorf(CodeSyntax, "a verb must follow the tag, such as PING: HELP lists them")
	}
	if r.Verb, ok = ParseVerb(word); !ok {
		return Errorf(CodeVerb, "%s is not a verb: HELP lists them", quote(word))
	}
	for word, ok = w.next(); ok; word, ok = w.next() {
		if err := r.argument(word); err != nil {
			return err
		}
	}
	return r.complete()
}

// argument reads one word after the verb.
func (r *Request) argument(word string) error {
	if key, value, ok := strings.Cut(word, "="); ok {
		return r.option(key, value)
	}
	g := &grammars[r.Verb]
	switch {
	case r.Set != 0:
		return Errorf(CodeSyntax, "%s comes after an option, where only options may follow (write a space in a value as %%20): %s", quote(word), r.Verb.Usage())
	case g.maxNames > 0 && len(r.Names) == 0:
		return r.names(word)
	case len(r.Words) < g.maxWords:
		return r.word(word)
	}
	return Errorf(CodeSyntax, "%s is one word too many (write a space in a name as %%20): %s", quote(word), r.Verb.Usage())
}

func (r *Request) option(key, value string) error {
	allowed := grammars[r.Verb].options
	option := option(key)
	switch {
	case key == "":
		return Errorf(CodeOption, "%s has no option name before its = (write = in a name as %%3D)", quote("="+value))
	case option == nil:
		return Errorf(CodeOption, "%s is not an option: %s takes %s (write = in a name as %%3D)", quote(key), r.Verb, allowed)
	case !allowed.Has(option.set) && !r.isTry(option.set, value):
		return Errorf(CodeOption, "%s= is not an option of %s, which takes %s", key, r.Verb, allowed)
	case r.Has(option.set):
		return Errorf(CodeOption, "%s= is given twice", key)
	}
	r.Set |= option.set
	if err := r.assign(option, value); err != nil {
		return Errorf(CodeOption, "%s=%s: %v", key, quote(value), err)
	}
	return nil
}

// isTry reports whether the option is wait=0 of TRY, which is what TRY means anyway.
func (r *Request) isTry(which OptionSet, value string) bool {
	if r.Verb != VerbTry || which != OptWait {
		return false
	}
	wait, err := parseDuration(value)
	return err == nil && wait == 0
}

// names reads names of locks, separated by commas.
func (r *Request) names(list string) error {
	size := -1 // n names have n-1 commas between them
	for rest, more := list, true; more; {
		var word string
		word, rest, more = strings.Cut(rest, ",")
		if err := r.name(word); err != nil {
			return err
		}
		size += 1 + escapedLen(r.Names[len(r.Names)-1])
	}
	if size > maxNameList {
		return Errorf(CodeName, "the names of one request have %d bytes together; at most %d are allowed", size, maxNameList)
	}
	return nil
}

// name reads the next name.
func (r *Request) name(word string) error {
	name, err := unescape(word)
	if err != nil {
		return Errorf(CodeName, "%s: %v", quote(word), err)
	}
	if err := CheckName(name); err != nil {
		return err
	}
	switch most := grammars[r.Verb].maxNames; {
	case len(r.Names) == most && most == 1:
		return Errorf(CodeName, "%s takes one name (write a comma in a name as %%2C)", r.Verb)
	case len(r.Names) == most:
		return Errorf(CodeName, "%s takes at most %d names", r.Verb, most)
	case slices.Contains(r.Names, name):
		return Errorf(CodeName, "the name %s is given twice", quote(name))
	}
	r.Names = append(r.Names, name)
	return nil
}

// CheckName returns an *Error if name cannot be the name of a lock.
func CheckName(name string) error {
	switch {
	case name == "":
		return Errorf(CodeName, "a name is empty")
	case len(name) > MaxName:
		return Errorf(CodeName, "the name %s has %d bytes; at most %d are allowed", quote(name), len(name), MaxName)
	case !utf8.ValidString(name):
		return Errorf(CodeName, "the name %s is not UTF-8", quote(name))
	case strings.ContainsFunc(name, unicode.IsControl):
		return Errorf(CodeName, "the name %s contains a control character", quote(name))
	case strings.HasPrefix(name, reserved):
		return Errorf(CodeName, "the name %s is reserved: choose a name that does not begin with %s", quote(name), reserved)
	}
	return nil
}

// word reads the argument of a verb that takes no names.
func (r *Request) word(word string) error {
	value, err := unescape(word)
	switch {
	case err != nil:
		return Errorf(CodeSyntax, "%s: %v", quote(word), err)
	case len(value) > MaxWord:
		return Errorf(CodeSyntax, "%s has %d bytes; at most %d are allowed", quote(word), len(value), MaxWord)
	case r.Verb == VerbCancel && !ValidTag(value):
		return Errorf(CodeSyntax, "%s is not a tag: 1 to %d letters or digits, here without the @", quote(word), MaxTag)
	}
	r.Words = append(r.Words, value)
	return nil
}

// complete rejects a request that lacks something, or contradicts itself.
func (r *Request) complete() error {
	g := &grammars[r.Verb]
	missing := g.required &^ r.Set
	switch {
	case g.maxNames > 0 && len(r.Names) == 0 && r.Set&g.insteadOfName == 0,
		len(r.Words) < g.minWords:
		return Errorf(CodeSyntax, "%s needs %s: %s", r.Verb, g.needs(), r.Verb.Usage())
	case missing != 0:
		return Errorf(CodeOption, "%s needs %s", r.Verb, missing)
	case r.Has(OptLease | OptPID):
		return Errorf(CodeOption, "lease= and pid= exclude each other: each names the lease")
	case r.Has(OptFrom) && !r.All:
		return Errorf(CodeOption, "from= needs all=yes")
	case r.Has(OptPID) && g.options.Has(OptHold) && r.Hold != HoldPID:
		return Errorf(CodeOption, "pid= needs hold=pid")
	}
	return nil
}

// AppendTo appends the request as a line, including LF, that ParseRequest reads as the same
// request. It escapes names but does not check them: the reader of the line rejects invalid ones.
func (r *Request) AppendTo(b []byte) []byte {
	b = appendTag(b, r.Tag)
	b = append(b, r.Verb.String()...)
	for i, name := range r.Names {
		b = append(b, " ,"[min(i, 1)])
		b = appendEscaped(b, name)
	}
	for _, word := range r.Words {
		b = append(b, ' ')
		b = appendEscaped(b, word)
	}
	b = r.appendTo(b)
	return append(b, '\n')
}
