package redis

import (
	"fmt"
	"strings"
)

// UnexpectedAnswer returns the error of an answer of the wrong type.
func UnexpectedAnswer(op, wanted string, reply *Reply) error {
	return &AnswerError{fmt.Errorf("%s in answer to %s, where %s was expected", reply.describe(), op, wanted)}
}

// describe describes the reply for messages, without its content, which may be of any size.
func (r *Reply) describe() string {
	switch {
	case r.Err != nil:
		return "an error"
	case r.Nil:
		return "null"
	case len(r.Array) > 0:
		return fmt.Sprintf("a list of %d", len(r.Array))
	case r.Str != "":
		return fmt.Sprintf("a string of %d bytes", len(r.Str))
	}
	return fmt.Sprintf("%d (or nothing)", r.Int)
}

// IsNumber reports whether the reply is a number. The empty string and the empty list count as 0.
func (r *Reply) IsNumber() bool { return r.Err == nil && !r.Nil && r.Str == "" && len(r.Array) == 0 }

// IsText reports whether the reply is a string.
func (r *Reply) IsText() bool { return r.Err == nil && !r.Nil && r.Int == 0 && len(r.Array) == 0 }

// IsList reports whether the reply is a list. 0 and the empty string count as the empty list.
func (r *Reply) IsList() bool { return r.Err == nil && !r.Nil && r.Int == 0 && r.Str == "" }

// NestedError returns the first error that is an element of a list, from a command within a
// script; nil: there is none.
func (r *Reply) NestedError() error {
	for i := range r.Array {
		if err := r.Array[i].Err; err != nil {
			return err
		}
		if err := r.Array[i].NestedError(); err != nil {
			return err
		}
	}
	return nil
}

// IsKind reports whether a node's error begins with the word.
func IsKind(err error, word string) bool {
	kind, _, _ := strings.Cut(err.Error(), " ")
	return kind == word
}
