package ipc

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestParseRequest(t *testing.T) {
	tests := []struct {
		line string
		want Request
	}{
		{"PING", Request{Verb: VerbPing}},
		{"@a1 ping\r", Request{Tag: "a1", Verb: VerbPing}},
		{"@azAZ09 PING", Request{Tag: "azAZ09", Verb: VerbPing}},
		{" \tLOCK\t nightly-backup  wait=5s ", Request{Verb: VerbLock, Names: []string{"nightly-backup"},
			Options: Options{Set: OptWait, Wait: 5 * time.Second}}},
		{"LOCK b,a,%2c wait=forever", Request{Verb: VerbLock, Names: []string{"b", "a", ","},
			Options: Options{Set: OptWait, Wait: Forever}}},
		{"TRY a wait=0s", Request{Verb: VerbTry, Names: []string{"a"}, Options: Options{Set: OptWait}}},
		{"TRY gr%C3%BCn%20%25 ttl=250ms mode=shared slots=3 hold=pid pid=7 max=1h min=61s linger=5s beat=2m owner=o guard=100 reentrant=yes note=a=b,c id=i",
			Request{Verb: VerbTry, Names: []string{"grün %"}, Options: Options{
				Set: tryOptions, TTL: 250 * time.Millisecond, Mode: Shared, Slots: 3, Hold: HoldPID, PID: 7,
				Max: time.Hour, Min: 61 * time.Second, Linger: 5 * time.Second, Beat: 2 * time.Minute, Owner: "o", Guard: 100 * time.Millisecond,
				Reentrant: true, Note: "a=b,c", ID: "i"}}},
		{"UNLOCK lease=L", Request{Verb: VerbUnlock, Options: Options{Set: OptLease, Lease: "L"}}},
		{"UNLOCK lease=L wait=0", Request{Verb: VerbUnlock, Options: Options{Set: OptLease | OptWait, Lease: "L"}}},
		{"CHECK x pid=12", Request{Verb: VerbCheck, Names: []string{"x"}, Options: Options{Set: OptPID, PID: 12}}},
		{"CANCEL a1", Request{Verb: VerbCancel, Words: []string{"a1"}}},
		{"ADMIT node%201", Request{Verb: VerbAdmit, Words: []string{"node 1"}}},
		{"RESUME x lease=L owner=o", Request{Verb: VerbResume, Names: []string{"x"},
			Options: Options{Set: OptLease | OptOwner, Lease: "L", Owner: "o"}}},
		{"HELLO 1", Request{Verb: VerbHello, Words: []string{"1"}}},
		{"LOCK x note=", Request{Verb: VerbLock, Names: []string{"x"}, Options: Options{Set: OptNote}}},
		{"LOCK\tü\ufffd", Request{Verb: VerbLock, Names: []string{"ü\ufffd"}}},
		{"LOCK my.redlockd:x", Request{Verb: VerbLock, Names: []string{"my.redlockd:x"}}},
	}
	var got Request // must be overwritten by each line
	for _, tt := range tests {
		if err := ParseRequest([]byte(tt.line), &got); err != nil {
			t.Errorf("ParseRequest(%q): %v", tt.line, err)
		} else if !sameRequest(&got, &tt.want) {
			t.Errorf("ParseRequest(%q)\n got %+v\nwant %+v", tt.line, got, tt.want)
		}
	}
}

func TestParseRequestRefuses(t *testing.T) {
	long := strings.Repeat("x", MaxName+1)
	tests := []struct {
		line string
		code Code
		text string // must be contained in the error's text
	}{
		{"@a1", CodeSyntax, "a verb must follow the tag"},
		{"@ PING", CodeSyntax, `"@" is not a tag`},
		{"@a-1 PING", CodeSyntax, `"@a-1" is not a tag`},
		{"@12345678901234567 PING", CodeSyntax, "1 to 16 letters or digits"},
		{"LICK x", CodeVerb, `"LICK" is not a verb`},
		{"NONE", CodeVerb, `"NONE" is not a verb`},
		{"PING\x00", CodeSyntax, "byte 5 of the line is the control character U+0000: write it as %00"},
		{"LOCK a\u0085b", CodeSyntax, "write it as %C2%85"},
		{"LOCK a\x7fb", CodeSyntax, "write it as %7F"},
		{"LOCK a\xff", CodeSyntax, "byte 7 of the line is not UTF-8"},
		{"PING\r\r", CodeSyntax, "U+000D"},
		{"LOCK", CodeSyntax, "LOCK needs a name: LOCK name[,name...]"},
		{"WHO", CodeSyntax, "WHO needs a name: WHO name"},
		{"UNLOCK owner=o", CodeSyntax, "UNLOCK needs a name, or pid= or lease=: UNLOCK name[,name...]"},
		{"RESUME lease=l", CodeSyntax, "RESUME needs a name: RESUME name[,name...]"},
		{"CANCEL", CodeSyntax, "CANCEL needs a tag: CANCEL tag"},
		{"ADMIT", CodeSyntax, "ADMIT needs a node: ADMIT node|all"},
		{"CANCEL @a", CodeSyntax, "without the @"},
		{"ADMIT " + long, CodeSyntax, "201 bytes; at most 200 are allowed"},
		{"ADMIT a%", CodeSyntax, "%25"},
		{"LOCK a b", CodeSyntax, `"b" is one word too many`},
		{"LOCK wait=0 a", CodeSyntax, `"a" comes after an option`},
		{"PING x", CodeSyntax, `"x" is one word too many`},
		{"LOCK a,a", CodeName, `the name "a" is given twice`},
		{"LOCK a,%61", CodeName, "twice"},
		{"LOCK a,,b", CodeName, "empty"},
		{"LOCK a,", CodeName, "empty"},
		{"WHO a,b", CodeName, "WHO takes one name"},
		{"LOCK " + long, CodeName, "201 bytes; at most 200 are allowed"},
		{"LOCK redlockd:node", CodeName, `the name "redlockd:node" is reserved: choose a name that does not begin with redlockd:`},
		{"LOCK %0A", CodeName, "control character"},
		{"LOCK %7F", CodeName, "control character"},
		{"LOCK %C2%85", CodeName, "control character"},
		{"LOCK %FF", CodeName, "not UTF-8"},
		{"LOCK a%4", CodeName, "two hexadecimal digits"},
		{"LOCK a%4z", CodeName, "two hexadecimal digits"},
		{"LOCK a%z4", CodeName, "two hexadecimal digits"},
		{"LOCK " + strings.Repeat("n,", 100) + "m", CodeName, "twice"},
		{"LOCK " + manyNames(101, 1), CodeName, "at most 100 names"},
		{"LOCK " + manyNames(20, 180), CodeName, "together"},
		{"LOCK a color=red", CodeOption, `"color" is not an option: LOCK takes ttl= wait= mode=`},
		{"TRY a wait=1s", CodeOption, "wait= is not an option of TRY"},
		{"PING ttl=1s", CodeOption, "PING, which takes no options"},
		{"LOCK a =b", CodeOption, "no option name before its ="},
		{"LOCK a ttl=1s ttl=1s", CodeOption, "ttl= is given twice"},
		{"LOCK a ttl=-1s", CodeOption, `ttl="-1s": a duration is`},
		{"LOCK a ttl=1.5s", CodeOption, "a duration is a whole number"},
		{"LOCK a ttl=", CodeOption, "a duration is"},
		{"LOCK a ttl=forever", CodeOption, "a duration is"},
		{"LOCK a wait=Forever", CodeOption, "a duration is"},
		{"LOCK a ttl=99999999999999999999", CodeOption, "the largest duration is 2562047h"},
		{"LOCK a ttl=2562048h", CodeOption, "the largest duration is 2562047h"},
		{"LOCK a mode=both", CodeOption, "exclusive or shared"},
		{"LOCK a hold=on", CodeOption, "conn or pid or ttl"},
		{"LOCK a slots=0", CodeOption, "a number from 1 to 1000"},
		{"LOCK a slots=1001", CodeOption, "a number from 1 to 1000"},
		{"LOCK a hold=pid pid=0", CodeOption, "a number from 1 to 2147483647"},
		{"TRY a wait=forever", CodeOption, "wait= is not an option of TRY"},
		{"EXTEND a wait=0", CodeOption, "wait= is not an option of EXTEND"},
		{"TRY a lease=0", CodeOption, "lease= is not an option of TRY"},
		{"LOCK a slots=+3", CodeOption, "a number from 1 to"},
		{"LOCK a slots=0x3", CodeOption, "a number from 1 to"},
		{"LOCK a reentrant=maybe", CodeOption, "no or yes"},
		{"LOCK a owner=", CodeOption, "it has 0 bytes"},
		{"LOCK a note=" + long, CodeOption, "it has 201 bytes; 0 to 200 are allowed"},
		{"LOCK a note=%zz", CodeOption, "two hexadecimal digits"},
		{"LOCK a note=%ff", CodeOption, "not UTF-8"},
		{"LOCK a pid=3", CodeOption, "pid= needs hold=pid"},
		{"LOCK a hold=ttl pid=3", CodeOption, "pid= needs hold=pid"},
		{"CHECK lease=L pid=3", CodeOption, "exclude each other"},
		{"RESUME a", CodeOption, "RESUME needs lease="},
		{"LOCK a note=" + strings.Repeat("x", MaxLine), CodeTooLong, "4096"},
	}
	for _, tt := range tests {
		for _, tag := range []string{"", "@T9 "} {
			if tag != "" && strings.HasPrefix(tt.line, "@") {
				continue
			}
			var req Request
			err := ParseRequest([]byte(tag+tt.line), &req)
			var refused *Error
			if !errors.As(err, &refused) || refused.Code != tt.code {
				t.Errorf("ParseRequest(%q) = %v, want %s", tag+tt.line, err, tt.code)
			} else if tag == "" && !strings.Contains(refused.Text, tt.text) { // the tag shifts the byte offsets in the text
				t.Errorf("ParseRequest(%q): %q does not say %q", tt.line, refused.Text, tt.text)
			}
			if want := strings.Trim(tag, "@ "); tag != "" && req.Tag != want {
				t.Errorf("ParseRequest(%q): the tag is %q, want %q", tag+tt.line, req.Tag, want)
			}
		}
	}
}

// manyNames is a list of n different names of at least size bytes.
func manyNames(n, size int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = strings.Repeat("x", size-1) + string(rune('Ā'+i))
	}
	return strings.Join(names, ",")
}

func TestRequestLineLength(t *testing.T) {
	var req Request
	line := "PING" + strings.Repeat(" ", MaxLine-len("PING\n"))
	if err := ParseRequest([]byte(line), &req); err != nil {
		t.Errorf("%d bytes with LF: %v", len(line)+1, err)
	}
	if err := ParseRequest([]byte(line+" "), &req); err == nil {
		t.Errorf("%d bytes with LF are taken", len(line)+2)
	}
}

func TestRequestAppendTo(t *testing.T) {
	r := Request{Tag: "t", Verb: VerbLock, Names: []string{"a b", "c,d=\u0085\xff%ü"}, Options: Options{
		Set: OptTTL | OptWait | OptReentrant | OptGuard | OptNote, TTL: 1500 * time.Microsecond, Wait: Forever,
		Guard: -5 * time.Second, Note: "ü\n\x7f\ufffd"}}
	const want = "@t LOCK a%20b,c%2Cd%3D%C2%85%FF%25ü ttl=2 wait=forever guard=0 reentrant=no note=ü%0A%7F\ufffd\n"
	if got := string(r.AppendTo([]byte("x"))); got != "x"+want {
		t.Errorf("\n got %q\nwant %q", got, "x"+want)
	}
}

// A value of exactly the maximum is accepted, and one more is rejected. The maxima are those of the
// list of names, of the arguments of verbs without names, and of options.
func TestBoundsAreExact(t *testing.T) {
	names := func(last int) string {
		var list []string
		for i := range 14 {
			list = append(list, strings.Repeat(string(rune('a'+i)), 199))
		}
		return strings.Join(append(list, strings.Repeat("z", last)), ",")
	}
	escaped := func(last string) string {
		var list []string
		for i := range 5 {
			list = append(list, string(rune('a'+i))+strings.Repeat("%20", 199))
		}
		return strings.Join(append(list, last), ",")
	}
	for line, isTaken := range map[string]bool{
		"LOCK " + names(200):                true, // 15 names, 3,000 bytes with the commas
		"LOCK " + names(201):                false,
		"ADMIT " + strings.Repeat("n", 200): true,
		"ADMIT " + strings.Repeat("n", 201): false,

		"LOCK " + escaped("zzzzz"):  true, // the bound counts the escaped form of a space
		"LOCK " + escaped("zzzzzz"): false,

		"LOCK " + manyNames(99, 1):  true,
		"LOCK " + manyNames(100, 1): true,
		"LOCK " + manyNames(101, 1): false,

		"LOCK a owner=" + strings.Repeat("o", 64): true,
		"LOCK a owner=" + strings.Repeat("o", 65): false,
		"LOCK a note=" + strings.Repeat("n", 200): true,
		"LOCK a note=" + strings.Repeat("n", 201): false,
		"LOCK a id=":                               false,
		"LOCK a id=" + strings.Repeat("i", 64):     true,
		"LOCK a id=" + strings.Repeat("i", 65):     false,
		"UNLOCK lease=":                            false,
		"UNLOCK lease=" + strings.Repeat("l", 128): true,
		"UNLOCK lease=" + strings.Repeat("l", 129): false,
		"LOCK a slots=1000":                        true,
		"LOCK a slots=1001":                        false,
		"LOCK a hold=pid pid=2147483647":           true,
		"LOCK a hold=pid pid=2147483648":           false,
		"LOCK a ttl=2562047h":                      true,
		"LOCK a ttl=2562048h":                      false,
		"LOCK a ttl=9223372036854":                 true,
		"LOCK a ttl=9223372036855":                 false,
		"LOCK a wait=9223372036854775808ms":        false,
	} {
		var r Request
		if err := ParseRequest([]byte(line), &r); (err == nil) != isTaken {
			t.Errorf("%.20s…, %d bytes: %v, want it taken: %v", line, len(line), err, isTaken)
		}
	}
}

func TestUsageNamesEveryOption(t *testing.T) {
	const want = "RESUME name[,name...] [owner=] lease="
	if got := VerbResume.Usage(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for v := VerbLock; v <= VerbQuit; v++ {
		if got, ok := ParseVerb(strings.ToLower(v.String())); got != v || !ok {
			t.Errorf("ParseVerb(%q) = %v, %v", v, got, ok)
		}
		if !strings.HasPrefix(v.Usage(), v.String()) {
			t.Errorf("usage of %v is %q", v, v.Usage())
		}
	}
}

// sameRequest compares requests; a nil slice equals an empty one.
func sameRequest(a, b *Request) bool {
	x, y := *a, *b
	if len(x.Names) == 0 && len(y.Names) == 0 {
		x.Names, y.Names = nil, nil
	}
	if len(x.Words) == 0 && len(y.Words) == 0 {
		x.Words, y.Words = nil, nil
	}
	return reflect.DeepEqual(x, y)
}

// FuzzRequest: formatting a parsed request and parsing it again gives the same request and the same
// line.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"PING", "@a1 LOCK nightly-backup ttl=10s wait=5s\r", "lock a,b,%2C wait=forever note=a%20b=c,d",
		"TRY x mode=shared slots=3 hold=pid pid=1 max=1h linger=0 beat=2m owner=o guard=1 reentrant=no id=1",
		"UNLOCK lease=4fJk2", "UNLOCK wait=250 lease=4fJk2", "@Z9 CANCEL a1", "ADMIT node%201", "EXTEND x ttl=30000", "RESUME x lease=l", "RESUME x,y lease=l",
		"HELLO 1", "HELP lock", "LOCK a,,b", "LOCK %zz", "@", "LOCK \xff", "LOCK gr%C3%BCn,grün", "WHO a\tb", "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var first, second Request
		if ParseRequest(line, &first) != nil {
			return
		}
		written := first.AppendTo(nil)
		if len(written) > MaxLine {
			return // the escaped form is too long; the input escaped less
		}
		if err := ParseRequest(written[:len(written)-1], &second); err != nil {
			t.Fatalf("%q became %q: %v", line, written, err)
		}
		if !sameRequest(&first, &second) {
			t.Fatalf("%q became %q\nfirst  %+v\nsecond %+v", line, written, first, second)
		}
		if again := second.AppendTo(nil); string(again) != string(written) {
			t.Fatalf("%q became %q and then %q", line, written, again)
		}
	})
}

func BenchmarkParseRequest(b *testing.B) {
	for _, line := range []string{
		"@a1 LOCK nightly-backup owner=17 ttl=10s wait=5s", "@a2 UNLOCK lease=4fJk2abcdefghijklmnopqr", "@a3 CHECK nightly-backup",
	} {
		b.Run(strings.Fields(line)[1], func(b *testing.B) {
			var req Request
			in := []byte(line)
			b.ReportAllocs()
			for b.Loop() {
				if err := ParseRequest(in, &req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRequestAppendTo(b *testing.B) {
	r := Request{Tag: "a1", Verb: VerbLock, Names: []string{"nightly-backup"},
		Options: Options{Set: OptWait | OptOwner, Wait: time.Second, Owner: "17"}}
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = r.AppendTo(out[:0])
	}
}

// CheckName also rejects names that a line cannot contain, for callers that do not parse a line.
func TestCheckName(t *testing.T) {
	for name, text := range map[string]string{
		"":                             "a name is empty",
		"\xff":                         "is not UTF-8",
		"a\nb":                         "a control character",
		"redlockd:x":                   "is reserved",
		strings.Repeat("x", MaxName+1): "has 201 bytes; at most 200 are allowed",
		strings.Repeat("ü", MaxName/2): "",
		"a name, with %2C and = in its w\u00f6rds": "",
	} {
		err := CheckName(name)
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("CheckName(%q): %v, want %q", name, err, text)
		}
	}
}
