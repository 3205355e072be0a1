package ipc

import "strings"

// Verb is the command of a request. The zero Verb is none.
type Verb uint8

// The verbs, in the order of the protocol's table.
const (
	VerbLock Verb = iota + 1
	VerbTry
	VerbUnlock
	VerbCancel
	VerbAdmit
	VerbNodes
	VerbExtend
	VerbCheck
	VerbResume
	VerbBeat
	VerbWho
	VerbList
	VerbStatus
	VerbForce
	VerbPing
	VerbHello
	VerbHelp
	VerbQuit
)

// grammar describes what may follow a verb.
type grammar struct {
	name          string
	form          string // the positional words, for people
	maxNames      int
	insteadOfName OptionSet // without one of these options, a name is required
	minWords      int
	maxWords      int
	options       OptionSet
	required      OptionSet
}

// needs describes in an error what the verb requires.
func (g *grammar) needs() string {
	what := "a" + g.form
	if end := strings.IndexAny(what, "[|"); end >= 0 {
		what = what[:end]
	}
	if g.insteadOfName != 0 {
		what += ", or " + strings.ReplaceAll(g.insteadOfName.String(), " ", " or ")
	}
	return what
}

const (
	tryOptions = OptTTL | OptMode | OptSlots | OptHold | OptPID | OptMax | OptMin | OptLinger |
		OptBeat | OptOwner | OptGuard | OptReentrant | OptNote | OptID
	leaseOptions = OptLease | OptPID
)

var grammars = [...]grammar{
	VerbLock:   {name: "LOCK", form: " name[,name...]", maxNames: MaxNames, options: tryOptions | OptWait},
	VerbTry:    {name: "TRY", form: " name[,name...]", maxNames: MaxNames, options: tryOptions},
	VerbUnlock: {name: "UNLOCK", form: " name[,name...]", maxNames: MaxNames, insteadOfName: leaseOptions, options: leaseOptions | OptOwner | OptWait},
	VerbCancel: {name: "CANCEL", form: " tag", minWords: 1, maxWords: 1},
	VerbAdmit:  {name: "ADMIT", form: " node|all", minWords: 1, maxWords: 1},
	VerbNodes:  {name: "NODES", form: " [commit|undo]", maxWords: 1},
	VerbExtend: {name: "EXTEND", form: " name[,name...]", maxNames: MaxNames, insteadOfName: leaseOptions, options: leaseOptions | OptOwner | OptTTL | OptMode},
	VerbCheck:  {name: "CHECK", form: " name[,name...]", maxNames: MaxNames, insteadOfName: leaseOptions, options: leaseOptions | OptOwner},
	VerbResume: {name: "RESUME", form: " name[,name...]", maxNames: MaxNames, options: OptLease | OptOwner, required: OptLease},
	VerbBeat:   {name: "BEAT", form: " name[,name...]", maxNames: MaxNames, insteadOfName: leaseOptions, options: leaseOptions | OptOwner},
	VerbWho:    {name: "WHO", form: " name", maxNames: 1},
	VerbList:   {name: "LIST", options: OptAll | OptFrom},
	VerbStatus: {name: "STATUS"},
	VerbForce:  {name: "FORCE", form: " name", maxNames: 1},
	VerbPing:   {name: "PING"},
	VerbHello:  {name: "HELLO", form: " [1]", maxWords: 1},
	VerbHelp:   {name: "HELP", form: " [verb]", maxWords: 1},
	VerbQuit:   {name: "QUIT"},
}

var verbs = func() map[string]Verb {
	m := make(map[string]Verb, len(grammars))
	for v := VerbLock; v <= VerbQuit; v++ {
		m[v.String()] = v
	}
	return m
}()

// ParseVerb returns the verb with that name, in upper or lower case.
func ParseVerb(word string) (Verb, bool) {
	var upper [8]byte // longer than every verb
	if len(word) > len(upper) {
		return 0, false
	}
	for i := range len(word) {
		upper[i] = word[i]
		if 'a' <= word[i] && word[i] <= 'z' {
			upper[i] -= 'a' - 'A'
		}
	}
	v, ok := verbs[string(upper[:len(word)])]
	return v, ok
}

func (v Verb) isKnown() bool { return v >= VerbLock && v <= VerbQuit }

// Waits reports whether a request with this verb may take time, because it asks the nodes or waits
// for a holder. Other requests are answered from memory as soon as they begin.
func (v Verb) Waits() bool {
	switch v {
	case VerbLock, VerbTry, VerbUnlock, VerbAdmit, VerbNodes, VerbExtend, VerbResume, VerbWho, VerbForce:
		return true
	}
	return false
}

// String returns the verb as requests spell it.
func (v Verb) String() string {
	if !v.isKnown() {
		return "NONE"
	}
	return grammars[v].name
}

// Usage returns the form of a request with this verb, in one line.
func (v Verb) Usage() string {
	if !v.isKnown() {
		return ""
	}
	g := &grammars[v]
	var b strings.Builder
	b.WriteString(g.name + g.form)
	for word := range g.options.words() {
		if g.required.Has(word.set) {
			b.WriteString(" " + word.key + "=")
		} else {
			b.WriteString(" [" + word.key + "=]")
		}
	}
	return b.String()
}
