package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// check returns what was wanted instead of a value, or "" if it is good.
type check func(value string) (wanted string)

// maxCount bounds the counts of a config file. No real value comes near it.
const maxCount = 1_000_000_000

// text reads a string attribute into *to and reports whether it is there and good.
func (b *section) text(word string, to *string, check check) bool {
	attr := b.attr(word)
	if attr == nil {
		return false
	}
	value, ok := b.r.checkedString(attr.Expr, b.name(word), check)
	if ok {
		*to = value
	}
	return ok
}

// texts reads a list of different strings into *to.
func (b *section) texts(word string, to *[]string, check check) {
	attr := b.attr(word)
	if attr == nil {
		return
	}
	list, ok := attr.Expr.(*hclsyntax.TupleConsExpr)
	if !ok {
		b.r.valueOf(attr.Expr, b.name(word), `a list of strings such as ["a", "b"]`, cty.NilType)
		return
	}
	seen := map[string]bool{}
	for _, element := range list.Exprs {
		value, ok := b.r.checkedString(element, b.name(word), check)
		if ok && seen[value] {
			b.r.faultf(element.Range(), "%s: wanted each word once, found %s again", b.name(word), quote(value))
		}
		if ok && !seen[value] {
			*to = append(*to, value)
		}
		seen[value] = true
	}
}

// duration reads a duration between shortest and longest into *to.
func (b *section) duration(word string, to *time.Duration, shortest, longest time.Duration) {
	b.r.faulty[b.name(word)] = b.has(word) // until it is read
	value, at, ok := b.value(word, `a duration in quotes and with a unit, such as "10s"`, cty.String)
	if !ok {
		return
	}
	parsed, wanted := parseDuration(value.AsString(), shortest, longest)
	if wanted != "" {
		b.r.faultf(at, "%s: wanted %s, found %s", b.name(word), wanted, quote(value.AsString()))
		return
	}
	*to = parsed
	b.r.faulty[b.name(word)] = false
}

// count reads a whole number, at least 0, into *to.
func (b *section) count(word string, to *int) { b.number(word, to, maxCount, " (0: no bound)") }

// number reads a whole number from 0 to most into *to. note is for the fault.
func (b *section) number(word string, to *int, most int, note string) {
	wanted := fmt.Sprintf("a whole number from 0 to %d%s", most, note)
	value, at, ok := b.value(word, wanted, cty.Number)
	if !ok {
		return
	}
	n, _ := value.AsBigFloat().Float64()
	if n != math.Trunc(n) || n < 0 || n > float64(most) {
		b.r.faultf(at, "%s: wanted %s, found %s", b.name(word), wanted, describeValue(value))
		return
	}
	*to = int(n)
}

// flag reads true or false into *to.
func (b *section) flag(word string, to *bool) {
	if value, _, ok := b.value(word, "true or false, without quotes", cty.Bool); ok {
		*to = value.True()
	}
}

// value returns the value of the attribute word, and its position. ok means that the attribute is there,
// and of that type.
func (b *section) value(word, wanted string, want cty.Type) (value cty.Value, at hcl.Range, ok bool) {
	if attr := b.attr(word); attr != nil {
		value, ok = b.r.valueOf(attr.Expr, b.name(word), wanted, want)
		return value, attr.Expr.Range(), ok
	}
	return value, at, false
}

// attr returns the attribute word, or nil. finish accepts the word from now on.
func (b *section) attr(word string) *hclsyntax.Attribute {
	b.attrs = append(b.attrs, word)
	attr := b.body.Attributes[word]
	if attr != nil {
		b.r.positions[b.name(word)] = attr.Expr.Range()
	}
	return attr
}

func (r *reader) checkedString(expr hclsyntax.Expression, name string, check check) (string, bool) {
	value, ok := r.valueOf(expr, name, "a string in quotes", cty.String)
	if !ok {
		return "", false
	}
	if wanted := check(value.AsString()); wanted != "" {
		r.faultf(expr.Range(), "%s: wanted %s, found %s", name, wanted, quote(value.AsString()))
		return "", false
	}
	return value.AsString(), true
}

// valueOf returns the plain value of expr. If it is not of type want, the fault says wanted. It
// refuses other expressions without evaluating them: the format needs none, and some run for hours
// ("${1e99999999}").
func (r *reader) valueOf(expr hclsyntax.Expression, name, wanted string, want cty.Type) (cty.Value, bool) {
	if kind := expressionKind(expr); kind != "" {
		r.faultf(expr.Range(), "%s: wanted %s, found %s", name, wanted, kind)
		return cty.NilVal, false
	}
	value, diags := expr.Value(nil)
	switch {
	case diags.HasErrors(), !value.IsWhollyKnown():
		return cty.NilVal, false // the parser has complained already
	case value.IsNull() || value.Type() != want:
		r.faultf(expr.Range(), "%s: wanted %s, found %s", name, wanted, describeValue(value))
		return cty.NilVal, false
	}
	return value, true
}

// expressionKind returns what expr is, or "" for a plain string, number, true, false or null.
func expressionKind(expr hclsyntax.Expression) string {
	switch expr := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return ""
	case *hclsyntax.TemplateExpr:
		if expr.IsStringLiteral() {
			return ""
		}
		return "a template (for the plain text ${ write $${)"
	case *hclsyntax.TemplateWrapExpr:
		return "a template (for the plain text ${ write $${)"
	case *hclsyntax.UnaryOpExpr: // a negative number
		if _, plain := expr.Val.(*hclsyntax.LiteralValueExpr); plain {
			return ""
		}
	case *hclsyntax.ScopeTraversalExpr:
		return "a word without quotes"
	case *hclsyntax.TupleConsExpr:
		return "a list"
	case *hclsyntax.ObjectConsExpr:
		return "an object"
	}
	return "an expression"
}

// describeValue returns how a fault shows a value.
func describeValue(value cty.Value) string {
	switch kind := value.Type(); {
	case value.IsNull():
		return "null"
	case kind == cty.String:
		return "the string " + quote(value.AsString())
	case kind == cty.Number:
		return "the number " + formatNumber(value)
	case value.True():
		return "true"
	}
	return "false"
}

// formatNumber shortens a number with many digits: there can be millions.
func formatNumber(value cty.Value) string {
	n, _ := value.AsBigFloat().Float64()
	if math.Abs(n) < 1e15 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

// rangeOf returns the position of the first of these names that was set, or the start of the file.
func (r *reader) rangeOf(names ...string) hcl.Range {
	for _, name := range names {
		if at, ok := r.positions[name]; ok {
			return at
		}
	}
	return hcl.Range{Filename: r.file, Start: hcl.InitialPos, End: hcl.InitialPos}
}
