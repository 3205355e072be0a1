package ipc

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestResponseAppendTo(t *testing.T) {
	var r Response
	tests := []struct {
		make func()
		want string
	}{
		{func() { r.OK("") }, "OK\n"},
		{func() {
			r.OK("a1").Str("lock", "a b").Str("lease", "L=").Int("fence", 17).Ms("ttl", 9893*time.Millisecond+999*time.Microsecond)
		}, "@a1 OK lock=a%20b lease=L%3D fence=17 ttl=9893\n"},
		{func() { r.OK("a1").Strs("lock", "a,b", "c").Strs("x", "d").Strs("y") }, "@a1 OK lock=a%2Cb,c x=d y=\n"},
		{func() { r.Err("", CodeHeld, "held by cron on web3 (pid 4121)").Str("lock", "n") },
			"ERR HELD lock=n : held by cron on web3 (pid 4121)\n"},
		{func() { r.Line("t").Str("node", "a").Say("tab\tand\nline\xff") }, "@t - node=a : tab and line\ufffd\n"},
		{func() { r.Notice(EventBye).Ms("resume", 10*time.Second) }, "BYE resume=10000\n"},
		{func() { r.OK("").Say("a\tb") }, "OK : a b\n"},
		{func() { r.OK("").Say("a\nOK b") }, "OK : a OK b\n"},
		{func() { r.OK("").Str("note", "\n\u0085\xff") }, "OK note=%0A%C2%85%FF\n"},
	}
	for _, tt := range tests {
		tt.make()
		if got := string(r.AppendTo([]byte("x"))); got != "x"+tt.want {
			t.Errorf("\n got %q\nwant %q", got, "x"+tt.want)
		}
	}
}

func TestResponseCutsOnlyItsText(t *testing.T) {
	var r Response
	r.Err("t", CodeHeld, strings.Repeat("ü", MaxLine)).Str("note", strings.Repeat(" ", MaxNote))
	line := string(r.AppendTo(nil))
	if len(line) != MaxLine && len(line) != MaxLine-1 {
		t.Errorf("the line has %d bytes, want %d or one less", len(line), MaxLine)
	}
	if !strings.Contains(line, "note="+strings.Repeat("%20", MaxNote)+" : ü") || !strings.HasSuffix(line, "ü\n") {
		t.Errorf("it is cut in the wrong place: %q", line)
	}
}

func TestResponseLeavesOutWhatDoesNotFit(t *testing.T) {
	var r Response
	r.OK("").Str("a", "1").Str("b", strings.Repeat(",", MaxLine)).Str("c", "2")
	if got, want := string(r.AppendTo(nil)), "OK a=1 c=2\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A line is never longer than allowed, whether there is room for the text or not.
func TestResponseLineLength(t *testing.T) {
	const most = MaxLine - len("OK a=\n")
	for size, text := range map[int]string{
		most - len(" : text"): " : text",
		most - len(" : t"):    " : t",
		most - len(" : "):     "",
		most:                  "",
	} {
		var r Response
		a := " a=" + strings.Repeat("x", size)
		if got, want := string(r.OK("").Str("a", a[len(" a="):]).Say("text").AppendTo([]byte("before"))), "beforeOK"+a+text+"\n"; got != want {
			t.Errorf("with a value of %d bytes the line has %d bytes, want %d", size, len(got), len(want))
		}
	}
	var r Response
	if got, want := string(r.OK("").Str("a", strings.Repeat("x", most+1)).Say("text").AppendTo(nil)), "OK : text\n"; got != want {
		t.Errorf("got %.20q… of %d bytes, want %q", got, len(got), want)
	}
	for size, isTaken := range map[int]bool{most: true, most + 1: false} {
		line := "OK a=" + strings.Repeat("x", size)
		if err := ParseResponse([]byte(line), &r); (err == nil) != isTaken {
			t.Errorf("%d bytes without LF: %v, want it taken: %v", len(line), err, isTaken)
		}
	}
}

// The reply to the largest valid request contains all its names and its note.
func TestResponseHasRoomForAllNames(t *testing.T) {
	var req Request
	names := strings.Repeat("%20", 200) + ",a" + strings.Repeat("%20", 198) + "," + manyNames(94, 17)
	line := "@1234567890123456 LOCK " + names + " note=" + strings.Repeat("%20", MaxNote)
	if err := ParseRequest([]byte(line), &req); err != nil {
		t.Fatal(err)
	}
	var r Response
	r.Line(req.Tag).Strs("lock", req.Names...).Str("state", "waiting").Str("mode", "exclusive").Int("fence", math.MaxInt64).
		Int("ttl", math.MaxInt64).Int("pid", math.MaxInt32).Str("user", strings.Repeat("u", 32)).Int("since", math.MaxInt64).
		Str("note", req.Note).Str("last", "x")
	if got := string(r.AppendTo(nil)); !strings.HasSuffix(got, " last=x\n") {
		t.Errorf("%d bytes do not fit: %q", len(got), got)
	}
}

func TestParseResponse(t *testing.T) {
	var r Response
	const line = "@a1 ERR NOQUORUM granted=2 failed=c:timeout,d:a%2Cb retry=-5 x=007 y= big=99999999999999999999 : two : words \r"
	if err := ParseResponse([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	want := Response{Tag: "a1", Kind: KindErr, Code: CodeNoQuorum, Text: "two : words ", Fields: []Field{
		{Key: "granted", Number: 2, IsNumber: true},
		{Key: "failed", List: []string{"c:timeout", "d:a,b"}},
		{Key: "retry", Number: -5, IsNumber: true},
		{Key: "x", Value: "007"}, {Key: "y"}, {Key: "big", Value: "99999999999999999999"},
	}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("\n got %+v\nwant %+v", r, want)
	}
	if err := ParseResponse([]byte("OK n=1"), &r); err != nil || r.Tag != "" || r.Code != "" || r.Text != "" || len(r.Fields) != 1 {
		t.Errorf("something of the line before is left: %+v, %v", r, err)
	}
}

func TestResponseFields(t *testing.T) {
	var r Response
	r.OK("").Int("n", 3).Strs("l", "a", "b").Str("s", "x").Int("big", math.MaxInt64).Int("small", math.MinInt64)
	for _, key := range []string{"n=3", "l=a,b", "s=x"} {
		key, want, _ := strings.Cut(key, "=")
		if got, ok := r.Get(key); got != want || !ok {
			t.Errorf("Get(%q) = %q, %v", key, got, ok)
		}
		if got := r.Strings(key); !slices.Equal(got, strings.Split(want, ",")) {
			t.Errorf("Strings(%q) = %q", key, got)
		}
	}
	if _, ok := r.Get("none"); ok || r.Strings("none") != nil {
		t.Error("there is a field that there is not")
	}
	if n, ok := r.Int64("n"); n != 3 || !ok {
		t.Errorf("Int64(n) = %d, %v", n, ok)
	}
	if _, ok := r.Int64("s"); ok {
		t.Error("x is a number")
	}
	if d, ok := r.Duration("n"); d != 3*time.Millisecond || !ok {
		t.Errorf("Duration(n) = %v, %v", d, ok)
	}
	r.Int("longest", math.MaxInt64/1_000_000)
	if d, ok := r.Duration("longest"); d != math.MaxInt64/1_000_000*time.Millisecond || !ok {
		t.Errorf("Duration(longest) = %v, %v", d, ok)
	}
	for _, key := range []string{"big", "small", "s", "l", "none"} {
		if d, ok := r.Duration(key); ok {
			t.Errorf("Duration(%s) = %v", key, d)
		}
	}
}

func TestParseResponseKinds(t *testing.T) {
	tests := []struct {
		line  string
		kind  Kind
		event string
	}{
		{"OK", KindOK, ""}, {"@x OK n=0", KindOK, ""}, {"- node=a", KindLine, ""},
		{"LOST lock=a reason=quorum", KindEvent, EventLost}, {"NEWS", KindEvent, "NEWS"}, {"AZ", KindEvent, "AZ"},
	}
	for _, tt := range tests {
		var r Response
		if err := ParseResponse([]byte(tt.line), &r); err != nil || r.Kind != tt.kind || r.Event != tt.event {
			t.Errorf("ParseResponse(%q) = %+v, %v", tt.line, r, err)
		}
	}
}

func TestParseResponseRefuses(t *testing.T) {
	for _, line := range []string{
		"", "@a", "ok", "@a LOST", "ERR", "ERR held", "OK word", "OK =x", "ERR 17", "ERR A-Z", "OK a=%", "OK a=b,%zz", "OK a=\x01", "OK a=\xff",
		"OK :x",
		"@- OK", "OK a=" + strings.Repeat("x", MaxLine),
	} {
		var r Response
		if err := ParseResponse([]byte(line), &r); err == nil {
			t.Errorf("ParseResponse(%q) = %+v", line, r)
		}
	}
}

// FuzzResponse checks for responses what FuzzRequest checks for requests.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"OK", "@a1 OK lock=a%20b lease=x fence=1795247588294176 ttl=9893 deadline=-5", "ERR HELD lock=a : held by x",
		"- node=a address=unix:/x state=ready", "LOST lock=a,b%2Cc reason=quorum", "BYE resume=1", "OK :", "OK : ", "OK :  x\ty ",
		"OK a=, b=007 c=%31 d=-0 e==,=", "ERR", "OK \u00fc=\u00fc", "@x - : \ufffd",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var first, second Response
		if ParseResponse(line, &first) != nil {
			return
		}
		written := first.AppendTo(nil)
		if len(written) >= MaxLine-3 {
			return // the text may be cut, because the input escaped less
		}
		if err := ParseResponse(written[:len(written)-1], &second); err != nil {
			t.Fatalf("%q became %q: %v", line, written, err)
		}
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("%q became %q\nfirst  %+v\nsecond %+v", line, written, first, second)
		}
		if again := second.AppendTo(nil); string(again) != string(written) {
			t.Fatalf("%q became %q and then %q", line, written, again)
		}
	})
}

func BenchmarkResponseAppendTo(b *testing.B) {
	var r Response
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		r.OK("a1").Str("lock", "nightly-backup").Str("lease", "4fJk2abcdefghijklmnopqr").
			Int("fence", 1795247588294176).Ms("ttl", 9893*time.Millisecond).Int("deadline", 5025417)
		out = r.AppendTo(out[:0])
	}
}

func BenchmarkParseResponse(b *testing.B) {
	in := []byte("@a1 OK lock=nightly-backup lease=4fJk2abcdefghijklmnopqr fence=1795247588294176 ttl=9893 deadline=5025417")
	var r Response
	b.ReportAllocs()
	for b.Loop() {
		if err := ParseResponse(in, &r); err != nil {
			b.Fatal(err)
		}
	}
}
