package config

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxNesting bounds how deep the HCL parser recurses, about 7 KB of stack a level.
const maxNesting = 1000

// checkNesting refuses what would overflow the parser's stack, which nobody
// can recover from: a few ten thousand open brackets, or the same number of
// operators before one operand.
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
