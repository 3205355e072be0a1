package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// reader turns one file into a Config. It continues after a fault, so that
// it reports all of them at once.
type reader struct {
	file        string
	credentials string  // the directory of relative file names
	syntax      []Fault // faults of the HCL syntax: a part of the file was not understood
	faults      []Fault
	warnings    []Fault
	positions   map[string]hcl.Range // the position of each value or block that was set, by path: "lease.ttl", "access"
	faulty      map[string]bool      // the values with a fault, which must not be compared with others
	visited     func(*section)       // called for each block when all its words are known; may be nil
	blocksOf    map[string][]string  // see otherBlock, which sets it
}

// section is the content of one block. It records the words that were read, and finish refuses all
// others: no word can be ignored silently.
type section struct {
	r      *reader
	path   string // of the block, for faults: `quorum`, `node "a"`; "" is the file
	header hcl.Range
	body   *hclsyntax.Body
	attrs  []string
	blocks []string
}

func newReader(file string) *reader {
	return &reader{file: file, credentials: credentialsDirectory(file), positions: map[string]hcl.Range{}, faulty: map[string]bool{}}
}

func (r *reader) body(path string, block *hclsyntax.Block) *section {
	r.positions[path] = block.DefRange()
	return &section{r: r, path: path, header: block.DefRange(), body: block.Body}
}

// name returns the name of the attribute or block word in faults.
func (b *section) name(word string) string {
	if b.path == "" {
		return word
	}
	return b.path + "." + word
}

// readBlock reads the block word, which may occur once, and reports whether it is there.
func (b *section) readBlock(word string, read func(*section)) bool {
	found := b.named(word)
	for i, block := range found {
		if len(block.Labels) > 0 {
			b.r.faultf(block.LabelRanges[0], "%s: wanted no name before the {, found %s", b.name(word), quote(block.Labels[0]))
		}
		if i > 0 {
			b.r.faultf(block.DefRange(), "%s: wanted one such block, found another (the first is in line %d)", b.name(word), found[0].DefRange().Start.Line)
		}
		inner := b.r.body(b.name(word), block)
		read(inner)
		inner.finish()
	}
	return len(found) > 0
}

// readNamedBlocks reads every block word "name" { … }, in order, and returns their number. The
// names must be unique.
func (b *section) readNamedBlocks(word string, read func(name string, body *section)) int {
	found := b.named(word)
	seen := map[string]int{}
	for _, block := range found {
		name := b.label(word, block)
		if line, again := seen[name]; again && name != "" {
			b.r.faultf(block.LabelRanges[0], "%s: wanted a name of its own, found %q, which line %d already has", word, name, line)
		} else {
			seen[name] = block.DefRange().Start.Line
		}
		path := word
		if name != "" {
			path = fmt.Sprintf("%s %q", word, name)
		}
		inner := b.r.body(path, block)
		read(name, inner)
		inner.finish()
	}
	return len(found)
}

// label returns the block's only name, or "" after a fault.
func (b *section) label(word string, block *hclsyntax.Block) string {
	if len(block.Labels) != 1 {
		b.r.faultf(block.DefRange(), "%s: wanted one name before the {, such as %s \"a\" {, found %d", word, word, len(block.Labels))
		return ""
	}
	if complaint := checkName(block.Labels[0]); complaint != "" {
		b.r.faultf(block.LabelRanges[0], "%s: wanted %s, found %s", word, complaint, quote(block.Labels[0]))
		return ""
	}
	return block.Labels[0]
}

func (b *section) named(word string) []*hclsyntax.Block {
	b.blocks = append(b.blocks, word)
	var found []*hclsyntax.Block
	for _, block := range b.body.Blocks {
		if block.Type == word {
			found = append(found, block)
		}
	}
	return found
}

// missing reports that word is not there.
func (b *section) missing(word, wanted string) {
	if len(b.r.syntax) == 0 {
		b.r.faultf(b.header, "%s: wanted %s, found none", b.name(word), wanted)
	}
}

// has reports whether the attribute word is there, good or bad.
func (b *section) has(word string) bool {
	return b.body.Attributes[word] != nil
}

// isEmpty reports whether the list word is absent or [].
func (b *section) isEmpty(word string) bool {
	attr := b.body.Attributes[word]
	if attr == nil {
		return true
	}
	list, ok := attr.Expr.(*hclsyntax.TupleConsExpr)
	return ok && len(list.Exprs) == 0
}

// finish reports a fault for every word that was not read.
func (b *section) finish() {
	if b.r.visited != nil {
		b.r.visited(b)
	}
	for word, attr := range b.body.Attributes {
		if !slices.Contains(b.attrs, word) {
			b.r.faultf(attr.NameRange, "%s", b.unknown("attribute", word))
		}
	}
	for _, block := range b.body.Blocks {
		if !slices.Contains(b.blocks, block.Type) {
			b.r.faultf(block.TypeRange, "%s", b.unknown("block", block.Type))
		}
	}
}

// unknown returns the text of the fault for a word that does not belong here. It never shows the
// value, which may be a password.
func (b *section) unknown(kind, word string) string {
	known := append(slices.Clone(b.attrs), b.blocks...)
	place := b.path
	if place == "" {
		place = "the file"
	}
	text := fmt.Sprintf("%s: wanted %s; found the unknown %s %s", place, strings.Join(known, ", "), kind, quote(word))
	switch {
	case strings.Contains(strings.ToLower(word), "pass"):
		return text + `; a node's password is in a file: password_file = "…"`
	case kind == "attribute" && slices.Contains(b.blocks, word):
		return text + fmt.Sprintf("; %s is a block: %s { … }, without =", word, word)
	case kind == "block" && slices.Contains(b.attrs, word):
		return text + fmt.Sprintf("; %s is an attribute: %s = …", word, word)
	}
	return text + cmp.Or(b.r.otherBlock(word), suggestion(word, known))
}

// maxNesting bounds how deep the HCL parser recurses, about 7 KB of stack a level.
const maxNesting = 1000

// checkNesting refuses a source that would overflow the parser's stack, because a program cannot
// recover from that. Some ten thousand open brackets do, or as many operators before one operand.
func checkNesting(source []byte, path string) error {
	tokens, _ := hclsyntax.LexConfig(source, path, hcl.InitialPos)
	depth := 0
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenOParen, hclsyntax.TokenOBrack, hclsyntax.TokenOBrace,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc,
			hclsyntax.TokenBang, hclsyntax.TokenMinus, hclsyntax.TokenQuestion: // never closed; nothing real has many
			depth++
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenTemplateSeqEnd,
			hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth = max(depth-1, 0)
		}
		if depth > maxNesting {
			return &Error{Faults: []Fault{faultAt(token.Range, "wanted fewer than 1000 open brackets and operators, found more")}}
		}
	}
	return nil
}

// everyBlock is a config file with every kind of block, and no attributes.
const everyBlock = `
quorum {
  node "a" {
    tls {}
  }
}
lease {}
socket {}
access {
  rule "a" {}
}
limits {}
log {}
metrics {}
doctor {}
`

// otherBlock returns the end of a sentence that says to which block a misplaced word belongs, or "".
func (r *reader) otherBlock(word string) string {
	if r.blocksOf == nil {
		r.blocksOf = blocksOfWords()
	}
	word = strings.ToLower(word)
	homes := r.blocksOf[word]
	if len(homes) == 0 {
		return ""
	}
	return fmt.Sprintf("; %s belongs in the block %s", word, strings.Join(homes, " or "))
}

// blocksOfWords returns, for each word that the reader reads, the blocks that may contain it. It has
// no words of the file itself: their fault lists them.
func blocksOfWords() map[string][]string {
	homes := map[string][]string{}
	r := newReader("")
	r.visited = func(b *section) {
		if b.path == "" {
			return
		}
		for _, word := range slices.Concat(b.attrs, b.blocks) {
			homes[word] = append(homes[word], blockWord(b.path))
		}
	}
	file, _ := hclsyntax.ParseConfig([]byte(everyBlock), "", hcl.InitialPos)
	r.readConfig(file.Body.(*hclsyntax.Body))
	return homes
}

// blockWord returns the kind of a block from its path: tls of `node "a".tls`.
func blockWord(path string) string {
	path = path[strings.LastIndexByte(path, '.')+1:]
	word, _, _ := strings.Cut(path, " ")
	return word
}
